"""The commands, and the processes that wire the rooms together.

Rule of this room: thin. It reads arguments, calls the rooms and prints what they return. Commands
are loaded when they are called and import what they need when they run, so that the help is quick.

Exit status: 0 done, 1 could not be done, 2 asked for in a wrong way (arguments or files), 3 no
platform to ask, 130 interrupted. Errors are sentences on standard error.
"""
