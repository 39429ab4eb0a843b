import pytest

from shoal.simulation.curve import Meter


def test_measures_are_averaged_over_arrivals_whose_load_rounds_to_the_same_percent() -> None:
    meter = Meter(100_000)
    meter.arrival(1_000, 1_000, 500.0, failed=False)  # 1 %
    meter.arrival(400, 1_400, 700.0, failed=False)  # 1.4 % rounds to 1
    meter.arrival(100, 1_400, 900.0, failed=True)  # 1.5 % rounds to 2
    meter.arrival(0, 1_400, 1_100.0, failed=True)
    meter.arrival(2_000, 3_400, 0.0, failed=False)  # 3.5 % rounds to 4
    curves = meter.curves()
    assert curves.allocated_pct == pytest.approx({1: 1.2, 2: 1.4, 4: 3.4})
    assert curves.fragmented_pct == pytest.approx({1: 0.6, 2: 1.0, 4: 0.0})
    assert [curves.failed[load] for load in (0, 1, 2, 3, 4, 130)] == [0, 0, 2, 2, 2, 2]
    assert [curves.arrived[load] for load in (0, 1, 2, 3, 4, 130)] == [0, 1, 4, 4, 5, 5]
    assert max(curves.failed) == 130


def test_a_meter_that_saw_nothing_has_empty_curves() -> None:
    curves = Meter(1000).curves()
    assert not curves.allocated_pct
    assert not any(curves.failed.values())


def test_an_end_above_the_load_is_counted() -> None:
    meter = Meter(8000)
    for _ in range(3):
        meter.arrival(4000, 8000, 0.0, failed=True)
    assert meter.curves().failed[150] == 3
