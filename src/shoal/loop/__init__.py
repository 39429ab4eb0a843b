"""Events in, cycle, decisions out.

Rule of this room: it moves values between the core, a recorder and an executor, and knows of no
world outside. The live cluster, the embedded fleet and virtual time implement `Executor`; nobody
writes a second loop.

- `engine`: the loop itself, with the two protocols at its doors.
- `recording`: the format in which events and decisions are kept.
- `replay`: a recording run again, and compared.
"""
