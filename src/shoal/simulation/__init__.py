"""Virtual time: the production core, run over recorded demand as fast as it can decide.

Rule of this room: it never decides. It reads traces, feeds events to the loop, carries decisions
out in virtual time and measures what came of them. Chance lives here, seeded and printed; a seed
and a trace give the same run on any machine.
"""
