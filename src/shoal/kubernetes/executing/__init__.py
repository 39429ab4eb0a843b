"""Decisions carried out: what is written on pods, by whom, and what did not come true.

Rule of this room: all is written so that it may be carried out twice, and only while leading.
"""
