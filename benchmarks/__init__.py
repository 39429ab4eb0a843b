"""Measurements of Shoal on published traces and generated fleets.

A measurement is a function with `benchmarks.frame.bench` above it, in any module of this package:

    @bench
    def gang() -> Iterator[Result]:
        \"\"\"A gang of 512 eight-device pods on 5,000 nodes.\"\"\"
        yield Result("plan a gang that fits", seconds, "s", at_most=1.0)

`python -m benchmarks` runs all of them, `python -m benchmarks gang` one. Ratios and figures are
printed as measured; one that misses its target is printed as a miss.
"""
