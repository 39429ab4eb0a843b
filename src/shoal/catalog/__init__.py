"""What hardware can really do, as values: accelerators, geometry, modes, names, rates.

Rule of this room: frozen values and arithmetic on them, with nothing but the standard library.
Facts come from YAML files through `shoal.catalog.load`, which nothing here imports; each fact
carries the names of its sources.
"""
