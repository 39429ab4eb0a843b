"""Decides. Pure: (world, policy, now, seed, budget) -> decisions.

Rule of this room: no I/O, no clock, no logging, nothing but numpy and the standard library.

- `World` is the whole state; `World.apply(event)` is its only mutator (`events`, `world`).
- What the hot path reads lies in arrays of `Fleet`. What work takes from them is written only
  through the `Journal`, which can undo it.
- `cycle` speculates on the journal, rolls back to its start and returns decisions. They become
  state as `Decided` events, which the loop applies in order before it carries them out.
- `validate` holds the invariants.

Reading order: events, decisions, world, cycle, waiting, placement, board, eligibility, fleet,
journal, changes.
"""
