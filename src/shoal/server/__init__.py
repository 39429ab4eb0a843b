"""The REST API, over a replica of the world.

Rule of this room: it reads the replica under its lock and asks the writer through the inbox; it
decides nothing and keeps nothing. What people send is parsed strictly, and what is wrong with it is
said as a problem (RFC 9457). Importing the room imports no web framework: `address` serves clients
too.

- `models`: what the API sends and takes; `views` and `explain` make it from the replica.
- `submission`: manifests to workloads.
- `app`: the routes; `serving`: a server on a Unix socket of the user.
"""
