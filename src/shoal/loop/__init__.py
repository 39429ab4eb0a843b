"""Events in, cycle, decisions out.

Rule of this room: it moves values between the core, a recorder and an executor, and knows of no
world outside. The live cluster, the embedded fleet and virtual time implement `Executor`; nobody
writes a second loop.

- `engine`: the loop itself, with the two protocols at its doors.
- `writer`: one thread's steps: events and questions in (`inbox`), decisions made safe, answers out.
- `records`, `recording`: the format in which what happened and was decided is kept, and its writer.
- `story`: what the stream tells beside the world: when things happened, and the last decisions.
- `following`, `replica`: a recording read while it grows, and a world and story made of it.
- `doors`, `metrics`: what a platform shows to those who serve it.
- `replay`: a recording run again, and compared.
"""
