"""What the hot path reads: the fleet as numbers, a row a node and a column a leaf.

Rule of this room: what work takes from the arrays is written through the `journal` only, which can
undo it; `changes` tells readers what is new. Nothing here knows of workloads, queues or policies.
"""
