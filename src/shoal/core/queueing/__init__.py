"""Whose turn it is: who waits in which group, who sleeps until what, and the order of heads.

Order is all that this room decides. Aging and past use change it, and never a right to evict.
"""
