"""Decides. Pure: (world, policy, now, seed, budget) -> decisions.

Rule of this room: no I/O, no clock, no logging, nothing but numpy and the standard library.

- `World` is the whole state; `World.apply(event)` is its only mutator (`events`, `world`).
- What the hot path reads lies in arrays of `Fleet`. What work takes from them is written only
  through the `Journal`, which can undo it.
- `cycle` speculates on the journal, rolls back to its start and returns decisions. They become
  state as `Decided` events, which the loop applies in order before it carries them out.
- `validate` holds the invariants.

Rooms: `arrays` (the fleet as numbers), `placing` (where work goes), `policies` (how places score),
`queueing` (whose turn it is), `tenancy` (who may hold what), `limits` (what runs out), `eviction`
(who has to go). `world` holds them together, `cycle` asks them in order.

Reading order: events, decisions, world, cycle; then the rooms, each from its docstring.
"""
