"""Linear programs over fleet and demand: upper bounds, and prices for the placement policy.

Rule of this room: HiGHS lives here and nowhere else. What leaves it are integers and plain floats,
computed outside the core and told to it as events.
"""
