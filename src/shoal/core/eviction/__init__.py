"""Who has to go for whom: the cheapest victims, what bounds them, and the guard over all.

A plan is complete or it is not made. `clearing` searches with `choices`, `candidates` and
`one_node`; `victims`, `protection` and `losses` say what may go, from when on, and what that costs;
`making_room` is a cycle's part of it; `evictions` is what is remembered, `evicting` and `underway`
what is going.
"""
