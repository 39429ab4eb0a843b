"""Where work goes: which nodes are possible, how they score, and places that are kept.

`eligibility` and `board` know nodes for one pod, `placement` finds them for a whole gang by trying,
`reservation`, `keeping` and `ahead` hold places for those who wait, `growing` gives running elastic
work what nobody else can use, `defragment` proposes moves.
"""
