"""What happens to pods on their way into the cluster: gated, checked, and rewritten for DRA.

Rule of this package: objects and answers are values made by pure functions; only `server` and
`keeper` touch a network. Nothing here decides who may start: a pod that asks for accelerators in a
managed namespace is held by the gate, and the loop lifts it.

- `names`: labels, gate and object names that this package and the executor share.
- `expressions`: the tests on a pod, as CEL.
- `policies`: the gate and its guards, which run inside the API server and so never fail.
- `webhooks`: when the webhook is called. It never blocks by being away: policies do, with a
  sentence, where a pod may not pass without it.
- `review`: what the webhook answers, a pure function of the question.
- `server`, `certificates`, `keeper`: the webhook's process, its keys and their renewal.
- `installation`: all objects for one cluster, and the rights that each process needs.
"""
