"""For which sleepers there is room, while room gets less: as if it were looked at anew."""

import random

import pytest

from shoal.core.arrays.fleet import Fleet
from shoal.core.arrays.shape import Shapes
from shoal.core.placing.eligibility import StaticMasks
from shoal.core.queueing.sleepers import Kinds
from shoal.model.request import DeviceRequest, Request
from shoal.model.workload import Placement
from tests.core.build import node, share, whole

ZONES = ("a", "b")
REQUESTS = (
    *(whole(count, cpu) for count in (1, 2, 4) for cpu in (1, 8)),
    *(share(compute, memory) for compute in (250, 800) for memory in (0, 30)),
    Request(4000, 900),
    *(Request(1000, devices=DeviceRequest(1), selector=(("zone", zone),)) for zone in ZONES),
)


@pytest.mark.parametrize("seed", range(20))
def test_room_that_gets_less_is_room_looked_at_anew(seed: int) -> None:
    """Also where one pod set is small and the other large, and where some wake meanwhile."""
    chance = random.Random(seed)  # noqa: S311 - a test's
    fleet, shapes, kinds = Fleet(), Shapes(), Kinds()
    masks = StaticMasks(fleet)
    rows = [fleet.see(node(f"n{n}", 4, labels={"zone": ZONES[n % 2]})) for n in range(6)]
    sets = [(request,) for request in REQUESTS] + [(REQUESTS[2], REQUESTS[-1])]
    asked = [tuple(shapes.of(request) for request in each) for each in sets]
    for kind in asked:
        kinds.add(kind, masks)
    kinds.drop(asked[seed % len(asked)])
    fresh = [*rows[:2], chance.choice(rows[2:])]
    room = kinds.room(fleet, masks, fresh)
    assert len(room.kinds) == len(asked) - 1
    fleet.journal.checkpoint()
    for pod in range(60):
        row = chance.choice(rows)
        leaves = fleet.leaves[row]
        request = chance.choice(REQUESTS)
        taken = tuple(chance.sample(leaves, request.devices.count))
        fleet.take(request, Placement(pod, fleet.names[row], taken))
        room.lessen(fleet, chance.choice(([row], [row, *rows], None)))
        assert list(room.kinds) == list(kinds.room(fleet, masks, fresh).kinds)
    assert len(room.kinds) < len(asked) - 1


def test_without_sleepers_or_rows_there_is_room_for_nobody() -> None:
    """And then nothing is looked up."""
    fleet, kinds = Fleet(), Kinds()
    masks = StaticMasks(fleet)
    row = fleet.see(node("n", 4))
    assert not kinds.room(fleet, masks, [row]).kinds
    kinds.add((Shapes().of(whole(1)),), masks)
    assert not kinds.room(fleet, masks, []).kinds
