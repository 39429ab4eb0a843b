"""The production core on fleets that are not there: in virtual time, and as a living platform.

Rule of this room: it never decides. It reads traces, feeds events to the loop, carries decisions
out on simulated nodes and measures what came of them. Chance lives here, seeded and printed; a seed
and a trace give the same run on any machine.

- `run`, `virtual`: a trace in virtual time, as fast as it can be decided (`shoal simulate`).
- `platform`, `embedded`: a fleet that lives, fails and is written down (`shoal up`); its demand is
  the demo's `organisation`, what its work uses is `usage`.
"""
