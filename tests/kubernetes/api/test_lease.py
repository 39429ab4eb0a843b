"""There is never more than one leader, and never none for long, whatever the clocks say."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.kubernetes.api import lease as module
from shoal.kubernetes.api.client import Client
from shoal.kubernetes.api.errors import UnreachableError
from shoal.kubernetes.api.lease import LEASE_LIMITS, Candidate, LeaderLease, LeaseTerms
from tests.kubernetes.fake_api import (
    BOUND_S,
    FakeApi,
    Refusal,
    in_loop,
    patient,
    transport_to,
    until,
)

SECONDS = st.floats(0, 9)
RELEASES = st.sampled_from([False, False, True])


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def _candidates(api: FakeApi, clock: Clock, count: int = 2) -> AsyncIterator[list[Candidate]]:
    async with transport_to(api, limits=patient(LEASE_LIMITS)) as transport:
        client = Client(transport)
        yield [
            Candidate(client, "shoal", "shoal-system", f"pod-{i}", clock_s=clock)
            for i in range(count)
        ]


@in_loop
async def test_the_first_leads_and_the_second_waits() -> None:
    clock = Clock()
    async with FakeApi() as api, _candidates(api, clock) as (first, second):
        assert await first.attempt()
        assert not await second.attempt()
        for _ in range(30):
            clock.now_s += 2
            assert await first.attempt()
            assert not await second.attempt()
        assert (second.leader, second.term, first.term) == ("pod-0", 0, 0)
        assert first.remaining_s() == 10


@in_loop
async def test_a_leader_that_stops_renewing_steps_down_before_another_steps_up() -> None:
    clock = Clock()
    async with FakeApi() as api, _candidates(api, clock) as (first, second):
        await first.attempt()
        await second.attempt()
        clock.now_s += 9.5
        assert first.remaining_s() == 0.5
        assert not await second.attempt()
        clock.now_s += 0.5
        assert first.remaining_s() == 0
        assert not first.is_leader
        clock.now_s += 4.5
        assert not await second.attempt()
        clock.now_s += 0.5
        assert await second.attempt()
        assert second.term == 1
        assert not await first.attempt()
        assert first.leader == "pod-1"


@pytest.mark.parametrize("stamp", ["1999-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"])
@in_loop
async def test_case_o02_stamps_of_other_clocks_are_not_judged(stamp: str) -> None:
    clock = Clock()
    async with FakeApi() as api, _candidates(api, clock) as (first, second):
        await first.attempt()
        lease = api.objects["leases"]["shoal-system", "shoal"]
        lease["spec"]["renewTime"] = stamp
        api.put("leases", lease)
        for _ in range(7):
            assert not await second.attempt()
            clock.now_s += 2
        clock.now_s += 2
        assert await second.attempt()


@in_loop
async def test_a_released_lease_is_taken_at_once() -> None:
    clock = Clock()
    async with FakeApi() as api, _candidates(api, clock) as (first, second):
        await first.attempt()
        await second.attempt()
        await first.release()
        assert not first.is_leader
        assert await second.attempt()
        await first.release()
        assert await second.attempt()


@in_loop
async def test_a_deleted_lease_makes_no_second_leader() -> None:
    clock = Clock()
    async with FakeApi() as api, _candidates(api, clock) as (first, second):
        await first.attempt()
        await second.attempt()
        api.remove("leases", "shoal", "shoal-system")
        assert not await second.attempt()
        assert not await first.attempt()
        assert await first.attempt()
        assert not await second.attempt()


@in_loop
async def test_of_two_that_reach_for_it_one_gets_it() -> None:
    clock = Clock()
    async with FakeApi() as api, _candidates(api, clock, 5) as candidates:
        for _ in range(2):
            leads = await asyncio.gather(*(each.attempt() for each in candidates))
            assert leads.count(True) == 1
            clock.now_s += 16


@in_loop
async def test_a_renewal_that_arrived_without_an_answer_is_recognised() -> None:
    clock = Clock()
    async with FakeApi() as api, _candidates(api, clock) as (first, _):
        await first.attempt()
        clock.now_s += 2
        api.refuse("PATCH", Refusal(500, cut=True, arrives=True))
        with pytest.raises(UnreachableError):
            await first.attempt()
        assert first.remaining_s() == 8
        assert not api.refusals
        await first.attempt()
        assert await first.attempt()
        assert first.remaining_s() == 10
        assert first.term == 0


@in_loop
async def test_time_counts_from_before_the_renewal_was_sent() -> None:
    clock = Clock()
    async with FakeApi() as api, _candidates(api, clock) as (first, _):
        await first.attempt()
        api.hold = asyncio.Event()
        renewal = asyncio.ensure_future(first.attempt())
        await until(lambda: api.answered["PATCH"] == 1)
        clock.now_s += 3
        api.hold.set()
        assert await renewal
        assert first.remaining_s() == 7


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), RELEASES, SECONDS), max_size=40))
def test_never_two_leaders(steps: list[tuple[int, bool, bool, float]]) -> None:
    async def play() -> None:
        clock = Clock()
        async with FakeApi() as api, _candidates(api, clock, 3) as candidates:
            for who, lose, release, seconds in steps:
                clock.now_s += seconds
                api.refusals.clear()
                if lose:
                    api.refuse("PATCH", Refusal(500, cut=True, arrives=True))
                with contextlib.suppress(UnreachableError):
                    await (candidates[who].release if release else candidates[who].attempt)()
                assert sum(each.is_leader for each in candidates) <= 1

    asyncio.run(play())


def test_terms_that_allow_two_leaders_are_refused() -> None:
    with pytest.raises(ValueError, match="renew_deadline_s < duration_s"):
        LeaseTerms(duration_s=10, renew_deadline_s=10)
    with pytest.raises(ValueError, match="retry_s"):
        LeaseTerms(retry_s=9)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give leases' own transports time, as the server answers in a loop of this process."""
    monkeypatch.setattr(module, "LEASE_LIMITS", patient(LEASE_LIMITS))


@pytest.mark.usefixtures("unhurried")
@in_loop
async def test_the_lease_is_renewed_while_the_loop_is_busy_and_given_up_at_the_end() -> None:
    """The API answers in this loop; the lease's thread needs it, the scheduler's loop does not."""
    async with FakeApi() as api:
        changes: list[bool] = []
        led = threading.Event()

        def note(leads: bool) -> None:
            changes.append(leads)
            if leads:
                led.set()

        terms = LeaseTerms(retry_s=0.01)
        lease = LeaderLease(
            api, "shoal", "shoal-system", "pod-0", terms, on_change=note, clock_s=Clock()
        )
        await asyncio.to_thread(lease.start)
        assert await asyncio.to_thread(led.wait, BOUND_S)
        assert lease.is_leader
        assert lease.leader == "pod-0"
        before = api.version
        await until(lambda: api.version >= before + 3)
        assert lease._thread is not threading.current_thread()
        await asyncio.to_thread(lease.stop, BOUND_S)
        assert lease.remaining_s() <= 0
        assert not lease._thread.is_alive()
        assert changes == [True, False]
        assert api.objects["leases"]["shoal-system", "shoal"]["spec"]["holderIdentity"] == ""


@pytest.mark.usefixtures("unhurried")
@in_loop
async def test_a_lease_whose_server_is_away_runs_out_by_itself() -> None:
    clock = Clock()
    async with FakeApi() as api:
        led, lost = threading.Event(), threading.Event()
        lease = LeaderLease(
            api,
            "shoal",
            "shoal-system",
            "pod-0",
            LeaseTerms(retry_s=0.01),
            on_change=lambda leads: (led if leads else lost).set(),
            clock_s=clock,
        )
        await asyncio.to_thread(lease.start)
        assert await asyncio.to_thread(led.wait, BOUND_S)
        await api.stop()
        await until(lambda: lease.trouble is not None)
        assert 0 < lease.remaining_s() <= 10
        clock.now_s += 10
        assert lease.remaining_s() <= 0
        assert await asyncio.to_thread(lost.wait, BOUND_S)
        await asyncio.to_thread(lease.stop, BOUND_S)


@pytest.mark.usefixtures("unhurried")
@in_loop
async def test_an_error_of_ours_ends_the_leadership_and_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with FakeApi() as api:
        changes: list[bool] = []
        attempt = Candidate.attempt

        async def fail_later(candidate: Candidate) -> bool:
            if changes:
                raise RuntimeError("a bug")
            return await attempt(candidate)

        monkeypatch.setattr(Candidate, "attempt", fail_later)
        terms = LeaseTerms(retry_s=0.01)
        lease = LeaderLease(
            api, "shoal", "ns", "pod-0", terms, on_change=changes.append, clock_s=Clock()
        )
        lease.stop()
        await asyncio.to_thread(lease.start)
        await until(lambda: not lease.is_standing)
        assert changes == [True, False]
        assert "a bug" in (lease.trouble or "")
        assert api.objects["leases"]["ns", "shoal"]["spec"]["holderIdentity"] == ""
