"""The cluster adapter: what Shoal sees of a Kubernetes cluster, and the few ways it writes to it.

The lower half knows nothing of scheduling: `identity` and `transport` reach the API server,
`client` has the calls, `wire` the types, `reflector` and `store` keep a live copy of what is
watched, `lease` elects a leader, `events` tells people. Nothing is ever written with PUT: the wire
types hold only the fields that Shoal reads, so writing one back whole would lose the rest.

The upper half, in reading order: `truth` (the stores, and what one pod in them means), `inventory`
and `asks` (nodes and pods in the model's words), `source` with its layers `books`, `seats` and
`starts`, and `units` (what there is as the core's events), `plans` (what is written on pods),
`executor`, `writes` and `taking_back` (decisions carried out), `deadlines`, `scheduler` (all of it
in one loop), `process` and `probe` (the scheduler as a process), `picture` and `consistency` (for
commands that look once). `admission` and `release` stand beside it.
"""
