"""The words of Shoal as frozen values.

Rule of this room: values only. No I/O, no clock, nothing but the standard library, and no
behaviour beyond arithmetic on the value itself. Every other room speaks in these words.
"""
