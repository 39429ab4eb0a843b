"""What every queue may hold: guarantees, limits, lending, fair shares, and who has a right to what.

`tenants` is the door for the rest of the core. `accounts` count what is held; `guarantees`,
`shrinking`, `slots` and `lending` say what is promised; `quota` starts work within all of it;
`rights` says who may take what back; `shares`, `dominance` and `past` say whose turn is nearer.
"""
