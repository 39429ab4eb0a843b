"""Reasons and messages as sentences, in English and Chinese.

Rule of this room: words only. It takes values of the model and returns text; it decides nothing,
reads nothing and prints nothing. A sentence says what is, with numbers, and what to do where
something can be done.
"""
