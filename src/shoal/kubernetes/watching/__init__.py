"""From what the API server has to the core's events.

In reading order: `cache` and `truth` (the stores, and what one object in them means), `inventory`,
`fleet` and `asks` (nodes and pods in the model's words), `askers` (who asked), `units`, `holding`
and `timed_out` (who waits, and who may not), `flights`, `seats`, `starts` and `books` (who holds
what, and for whom), `source` (all of it, as events).
"""
