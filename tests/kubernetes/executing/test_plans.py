"""Notes on pods, pins, and the whole plan of a gang in parts."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.kubernetes.executing.plans import (
    PODS_PER_PART,
    PlanNote,
    PodPlan,
    pinned_node,
    read_note,
    release_patch,
    whole_plan,
    write_note,
)
from shoal.kubernetes.watching.flights import Flight, Seat, plans_of, pod_sets_of, rank
from shoal.kubernetes.wire.kinds import JOBS, NAMESPACES, NODES, PODS
from shoal.kubernetes.wire.pod import Pod
from shoal.model.request import Request
from shoal.model.workload import Placement, PodSet, Workload
from shoal.objects.annotations import PLAN
from tests.kubernetes.fake_api import in_loop
from tests.kubernetes.manifests import job, namespace, node, pod
from tests.kubernetes.rig import Rig, Shoal, merge


def read(body: object) -> Pod:
    return PODS.read(msgspec.json.encode(body))


def gang(count: int) -> Flight:
    seats = {
        n: Seat(Placement(n, f"node-{n}", (f"GPU-{n:036}",) * 8), f"uid-{n}", 0)
        for n in range(count)
    }
    workload = Workload("owner/0", (PodSet("pods", count, Request()),))
    return Flight(workload, 1, "owner", seats, together=True)


@given(st.integers(2, 3 * PODS_PER_PART))
def test_the_bearers_of_a_gang_carry_its_whole_plan(count: int) -> None:
    flight = gang(count)
    notes = {flight.seats[n].pod: flight.note(n) for n in flight.bearers}
    plans = whole_plan(notes.values())
    assert plans is not None
    assert [plan.placement() for plan in plans] == list(flight.placements)
    assert [plan.uid for plan in plans] == flight.pods
    # An annotation holds 256 KiB, with everything else that is on the object.
    assert all(len(write_note(note)) < 200_000 for note in notes.values())


def test_a_plan_of_which_a_part_is_missing_is_no_plan() -> None:
    flight = gang(PODS_PER_PART + 1)
    first, second = flight.bearers
    assert whole_plan([flight.note(first)]) is None
    assert whole_plan([flight.note(second)]) is None
    assert whole_plan([flight.note(2)]) is None


def test_a_pod_that_took_anothers_seat_speaks_for_it() -> None:
    flight = gang(3)
    notes = {"uid-0": flight.note(0)}
    later = PlanNote("owner/0", 1, 3, PodPlan(2, "node-2"))
    plans = plans_of(notes | {"successor": later})
    assert plans[2].uid == "successor"
    assert plans[1].uid == "uid-1"


def test_a_note_survives_writing_and_strangers_notes_are_none() -> None:
    note = PlanNote("owner/0", 2, 1, PodPlan(0, "n1", ("GPU-1",)))
    body = pod("a")
    body["metadata"]["annotations"][PLAN] = write_note(note)
    assert read_note(read(body)) == note
    for text in ("", "{}", "[]", "null", '{"workload": 1}'):
        body["metadata"]["annotations"][PLAN] = text
        assert read_note(read(body)) is None


WRITTEN: dict[str, Any] = {
    "workload": "uid-p/0",
    "attempt": 1,
    "pods": 2,
    "own": {"pod": 1, "node": "n1"},
}
KEPT = {"workload": "w/0", "plans": [{"pod": 0, "node": "n1"}], "evicted": [], "reason": "reclaim"}
EVICTION = {"beneficiaries": [], "reason": "reclaim", "grace_s": 1, "kept": [KEPT]}


@pytest.mark.parametrize(
    "other",
    [
        {"pods": 0},
        {"pods": 1},
        {"pods": 2**31},
        {"attempt": -1},
        {"own": {"pod": -1, "node": "n1"}},
        {"workload": "uid-p/x"},
        {"workload": "uid-p/"},
        {"whole": {"part": 0, "of": 1, "plans": [{"pod": 2, "node": "n1"}]}},
        {"eviction": EVICTION | {"reason": "because"}},
        {"eviction": EVICTION | {"kept": [KEPT | {"reason": "because"}]}},
    ],
)
def test_a_note_that_no_start_could_have_is_none(other: dict[str, Any]) -> None:
    """People can write it where Shoal does not act yet; a scheduler must not end of it."""

    def said(note: dict[str, Any]) -> PlanNote | None:
        return read_note(read(pod("p", notes={PLAN: msgspec.json.encode(note).decode()})))

    assert said(WRITTEN) is not None
    assert said(WRITTEN | {"eviction": EVICTION}) is not None
    assert said(WRITTEN | other) is None


@pytest.mark.parametrize(
    "forged",
    [
        {"own": {"pod": 1, "node": "nowhere", "leaves": ["none"]}},
        {"pods": 40, "own": {"pod": 39, "node": "n1"}},
        {"eviction": EVICTION | {"kept": [KEPT | {"workload": "uid-waits/0"}]}},
        {
            "eviction": EVICTION
            | {
                "kept": [
                    KEPT | {"workload": "uid-waits/0", "plans": [{"pod": 7, "node": "n1"}]},
                ]
            }
        },
    ],
)
@in_loop
async def test_a_scheduler_goes_on_whatever_notes_it_finds(forged: dict[str, Any]) -> None:
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    rig.put(NODES, node("n1"))
    rig.put(PODS, pod("waits", 8))
    for number in range(2):
        note = WRITTEN | {"workload": "uid-p0/0"} | (forged if number else {})
        body = pod(f"p{number}", gated=False, nodeName="n1")
        body["metadata"]["annotations"][PLAN] = msgspec.json.encode(note).decode()
        rig.put(PODS, body)
    shoal = Shoal(rig)
    await shoal.settle()
    rig.remove(PODS, "p0", "ns")
    rig.remove(PODS, "p1", "ns")
    await shoal.settle()
    assert rig.bound() == {"waits": "n1"}


def test_the_patch_pins_and_releases_and_holds_for_one_version() -> None:
    body = pod("a")
    body["metadata"] |= {"resourceVersion": "7", "uid": "u"}
    note = PlanNote("u/0", 1, 1, PodPlan(0, "n1"))
    patch = release_patch(read(body), note)
    assert patch["metadata"]["resourceVersion"] == "7"  # type: ignore[index]
    merge(body, patch)
    assert "schedulingGates" not in body["spec"]
    assert pinned_node(read(body)) == "n1"
    assert pinned_node(read(pod("b"))) == ""


def test_pods_have_the_order_of_their_indexes() -> None:
    names = []
    for index in (10, 2, 1):
        body = pod(f"p{index}")
        body["metadata"]["labels"] = {"batch.kubernetes.io/job-completion-index": str(index)}
        names.append(body)
    ordered = sorted((read(body) for body in names), key=rank)
    assert [each.metadata.name for each in ordered] == ["p1", "p2", "p10"]


def test_no_pods_have_no_pod_sets() -> None:
    assert pod_sets_of([]) == ()


@pytest.mark.parametrize(
    ("declared", "deadline_s", "run_s"),
    [("", None, None), ("2h", None, 7200), ("", 60, 60), ("2h", 60, 60), ("30s", 60, 30)],
)
@in_loop
async def test_how_long_work_runs_is_what_it_declares_or_until_its_owner_ends_it(
    declared: str, deadline_s: int | None, run_s: int | None
) -> None:
    notes = {"shoal.dev/run": declared} if declared else {}
    deadline: dict[str, Any] = {} if deadline_s is None else {"activeDeadlineSeconds": deadline_s}
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    owner = job("j", 2)
    owner["spec"] |= deadline
    rig.put(JOBS, owner)
    for number in range(2):
        rig.put(PODS, pod(f"j{number}", owner=owner, notes=notes))
    rig.put(PODS, pod("bare", notes=notes, **deadline))
    shoal = Shoal(rig)
    await shoal.step()
    run_us = None if run_s is None else run_s * 1_000_000
    assert {each.workload.run_us for each in shoal.world.entries.values()} == {run_us}
    assert len(shoal.world.entries) == 2


@pytest.mark.parametrize(("seconds", "grace_s"), [(2**63 - 1, 2**31 - 1), (-9, 0), (45, 45)])
@in_loop
async def test_no_pod_takes_longer_to_stop_than_can_be_recorded(seconds: int, grace_s: int) -> None:
    rig = Rig()
    rig.put(NAMESPACES, namespace())
    rig.put(PODS, pod("p", terminationGracePeriodSeconds=seconds))
    shoal = Shoal(rig)
    await shoal.step()
    (entry,) = shoal.world.entries.values()
    assert entry.workload.grace_us == grace_s * 1_000_000
