"""The cluster adapter: what Shoal sees of a Kubernetes cluster, and the few ways it writes to it.

The lower half knows nothing of scheduling: `api` reaches the API server and keeps a live copy of
what is watched, `wire` has the types. Nothing is ever written with PUT: the wire types hold only
the fields that Shoal reads, so writing one back whole would lose the rest.

The upper half: `watching` makes the core's events of what there is, `executing` carries decisions
out, `scheduler` is all of it in one loop, with `organisation` and `files` (pools and queues),
`memory` (what no other object says) and `pricing`; `process`, `probe` and `metrics` are the
scheduler as a process, `picture` and `consistency` are for commands that look once. `admission` and
`release` stand beside it.
"""
