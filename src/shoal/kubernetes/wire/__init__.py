"""The Kubernetes objects that Shoal reads, as slim typed structs.

Only the fields that Shoal uses are declared; msgspec skips the rest while it scans. Subtrees that
are only passed on stay raw JSON. Because of that an object from here is never written back whole.
Field names are Kubernetes' own in snake case; quantities stay strings (`objects.quantity` reads
them); times are aware datetimes. Every field has a default, so that the partial objects of
bookmarks can be read too.
"""
