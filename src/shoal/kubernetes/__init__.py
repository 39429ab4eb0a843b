"""The cluster adapter: what Shoal sees of a Kubernetes cluster, and the few ways it writes to it.

The lower half knows nothing of scheduling: `identity` and `transport` reach the API server,
`client` has the calls, `wire` the types, `reflector` and `store` keep a live copy of what is
watched, `lease` elects a leader, `events` tells people. Nothing is ever written with PUT: the wire
types hold only the fields that Shoal reads, so writing one back whole would lose the rest.
"""
