"""Reaching an API server: as whom, by which calls, and a live copy of what is watched.

Rule of this room: it knows nothing of scheduling. Nothing is ever written with PUT.
"""
