"""What changed queues will mean for who runs and waits, and every debt that they make."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.core.validate import check
from shoal.server.app import make_app
from tests.objects.written import queue
from tests.server.client import Api
from tests.server.rig import MINUTE_US, job, platform, pod
from tests.server.test_changing import end, names, said, take

HOUR_US = 60 * MINUTE_US

TOP = queue("acme", "guarantee: {H100: 8}")
LAB = queue("lab", "parent: acme, guarantee: {H100: 4}")
OTHER = queue("other", "parent: acme, guarantee: {H100: 4}")
TREE = TOP, LAB, OTHER


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Api]:
    """A platform of eight H100 whose queues are acme, and below it lab and other."""
    with platform(tmp_path, queues=None) as rig:
        client = Api(make_app(rig.standing), raise_server_exceptions=False)
        client.rig = rig
        take(client, *TREE)
        yield client


def with_more(text: str, more: str) -> str:
    """A queue with more fields in its spec, the last of its lines."""
    return f"{text.removesuffix('}' + chr(10))}, {more}}}\n"


def states(api: Api) -> dict[str, str]:
    return {each["name"]: each["state"] for each in api.ask("/workloads")["items"]}


def used(api: Api) -> dict[str, float]:
    return {
        each["name"]: sum(use["devices"] for use in each["used"])
        for each in api.ask("/queues")["items"]
    }


def debts(api: Api, *texts: str) -> list[str]:
    """The debts that are said before, once it is seen that they are those of the core after."""
    core = api.rig.writer.world.tenants.debts()
    listed = [each["kind"] for each in take(api, *texts, dry_run=True)["meanings"] if each["debt"]]
    meant = take(api, *texts)
    api.rig.step()
    check(api.rig.writer.world)
    now = api.rig.writer.world.tenants.debts()
    rules = {
        "limit": "LimitDebt",
        "borrowing": "BorrowDebt",
        "guarantee": "GuaranteeDebt",
        "placeable": "PlaceableDebt",
        "lending": "LendDebt",
    }
    assert listed == [
        rules[rule] for (rule, where), over in now.items() if over > core.get((rule, where), 0)
    ]
    return [each["text"] for each in meant["meanings"] if each["debt"]]


# Who is ended ------------------------------------------------------------------------------------


def test_who_has_run_or_waited_for_a_new_maximum_is_counted_before(lab: Api) -> None:
    lab.submit(job("run", 4, 2, queue="lab", accelerators="H100"))
    lab.rig.step()
    lab.rig.now_us += HOUR_US
    lab.submit(job("late", 4, 2, queue="lab", accelerators="H100"))
    lab.rig.now_us += HOUR_US
    lab.rig.step()
    short = with_more(LAB, "maximumRun: {training: 90m}, maximumWait: {training: 30m}")
    answer = take(lab, TOP, short, OTHER, dry_run=True)
    assert said(answer) == [
        "Queue lab: maximumRun.training is 1h30m; it had none of its own.",
        "Queue lab: maximumWait.training is 30m; it had none of its own.",
        (
            "Queue lab: work of type training that has run for its new maximum of 1h30m is ended at"
            " once: 1."
        ),
        (
            "Queue lab: work of type training that has waited for its new maximum of 30m is refused"
            " at once, unless it starts then: 1."
        ),
    ]
    assert states(lab) == {"run": "running", "late": "waiting"}
    take(lab, TOP, short, OTHER)
    lab.rig.step()
    assert states(lab) == {"run": "evicting"}, "and the other has been refused"


def test_what_a_file_lets_start_is_not_refused_by_it_as_is_said(lab: Api) -> None:
    narrow = with_more(LAB, "limit: {H100: 4}")
    take(lab, TOP, narrow, OTHER)
    lab.submit(job("run", 4, queue="lab", accelerators="H100"))
    lab.submit(job("late", 4, queue="lab", accelerators="H100"))
    lab.rig.now_us += HOUR_US
    lab.rig.step()
    assert states(lab) == {"run": "running", "late": "waiting"}
    wide = with_more(LAB, "maximumWait: {training: 30m}")
    (told,) = [each for each in said(take(lab, TOP, wide, OTHER)) if "at once" in each]
    assert told.endswith("is refused at once, unless it starts then: 1.")
    lab.rig.step()
    assert states(lab)["late"] in ("starting", "running")


def test_who_is_ended_later_or_anyway_is_not_counted(lab: Api) -> None:
    lab.submit(job("run", 4, queue="lab", accelerators="H100"))
    lab.rig.step()
    lab.rig.now_us += HOUR_US
    lab.rig.step()
    longer = with_more(LAB, "maximumRun: {training: 61m, batch: 1m}")
    assert [each for each in said(take(lab, TOP, longer, OTHER)) if "at once" in each] == []
    lab.rig.now_us += 2 * MINUTE_US
    shorter = with_more(LAB, "maximumRun: {training: 60m, batch: 1m}")
    assert said(take(lab, TOP, shorter, OTHER, dry_run=True)) == [
        "Queue lab: maximumRun.training changes from 1h1m to 1h."
    ]


# Closing -----------------------------------------------------------------------------------------

FOUR = "guarantee: {H100: 4}, limit: {H100: 4}"


def test_work_of_the_only_child_counts_under_the_limit_of_the_queue_above(lab: Api) -> None:
    """acme may hold four, which lab holds: no four more start in acme when lab is deleted."""
    acme = queue("acme", FOUR)
    take(lab, acme, queue("lab", "parent: acme, guarantee: {H100: 4}"))
    lab.submit(job("old", 4, queue="lab", accelerators="H100"))
    assert said(take(lab, acme)) == [
        (
            "Queue lab closes: what runs in it and below it goes on and is charged to it, 1 in it;"
            " nothing new starts, and it goes when it is empty."
        )
    ]
    assert names(lab) == ["acme", "lab"]
    assert used(lab) == {"acme": 4, "lab": 4}
    lab.submit(job("new", 4, queue="acme", accelerators="H100"))
    assert states(lab) == {"old": "running", "new": "waiting"}
    (wait,) = (each["wait"] for each in lab.ask("/workloads", name="new")["items"])
    assert wait["reason"] == "limit"
    check(lab.rig.writer.world)
    end(lab, "old")
    lab.rig.step()
    assert states(lab)["new"] == "running"


def test_work_starts_in_a_queue_with_a_closing_one_below_it(lab: Api) -> None:
    acme = queue("acme", "limit: {H100: 6}")
    take(lab, acme, queue("lab", "parent: acme"))
    lab.submit(job("old", 4, queue="lab", accelerators="H100"))
    take(lab, acme)
    lab.submit(
        job("fits", 2, queue="acme", accelerators="H100"),
        job("over", 1, queue="acme", accelerators="H100"),
    )
    assert states(lab) == {"old": "running", "fits": "running", "over": "waiting"}
    assert used(lab) == {"acme": 6, "lab": 4}
    check(lab.rig.writer.world)


def test_queues_close_under_a_new_root(lab: Api) -> None:
    lab.submit(job("old", 4, queue="lab", accelerators="H100"))
    corp = queue("corp", "guarantee: {H100: 4}, limit: {H100: 4}")
    meant = said(take(lab, corp))
    assert [each.partition(":")[0] for each in meant] == [
        "Queue corp is new, above all others.",
        "Queue acme closes",
        "Queue lab closes",
        "Queue other goes; nothing runs in it.",
    ]
    assert used(lab) == {"corp": 4, "acme": 4, "lab": 4}
    lab.submit(job("new", 1, queue="corp", accelerators="H100"))
    assert states(lab) == {"old": "running", "new": "waiting"}
    end(lab, "old")
    lab.rig.step()
    assert states(lab)["new"] == "running"
    take(lab, corp)
    assert names(lab) == ["corp"]


def test_a_queue_that_is_a_leaf_again_still_counts_what_closes_below_it(lab: Api) -> None:
    mid = queue("mid", "parent: acme, limit: {H100: 4}")
    take(lab, TOP, mid, queue("lab", "parent: mid"), OTHER)
    lab.submit(job("old", 4, queue="lab", accelerators="H100"))
    take(lab, TOP, mid, OTHER)
    assert used(lab) == {"acme": 4, "mid": 4, "lab": 4, "other": 0}
    lab.submit(job("new", 1, queue="mid", accelerators="H100"))
    assert states(lab)["new"] == "waiting"


def test_a_lender_takes_back_from_a_queue_that_closes_below_a_leaf(lab: Api) -> None:
    mid = queue("mid", "parent: acme")
    take(lab, TOP, mid, queue("lab", "parent: mid"), OTHER)
    for name in ("one", "two"):
        lab.submit(job(name, 4, queue="lab", accelerators="H100"))
    take(lab, TOP, mid, OTHER)
    lab.rig.now_us += 20 * MINUTE_US
    lab.submit(job("mine", 4, queue="other", accelerators="H100"))
    lab.rig.step()
    lab.rig.leave()
    found = states(lab)
    assert found["mine"] == "running"
    assert sorted(found[each] for each in ("one", "two")) == ["running", "waiting"]


def test_a_guarantee_covers_what_closes_below_it_and_own_work_together(lab: Api) -> None:
    """Of four guaranteed to mid, lab keeps the two that it uses; three more are one too many."""
    mid = queue("mid", "parent: acme, guarantee: {H100: 4}")
    take(lab, TOP, mid, queue("lab", "parent: mid, guarantee: {H100: 4}"), OTHER)
    lab.submit(pod("old", 2, queue="lab", type="notebook", accelerators="H100"))
    take(lab, TOP, mid, OTHER)
    three = pod("three", 3, queue="mid", type="notebook", accelerators="H100")
    lab.submit(three, pod("two", 2, queue="mid", type="notebook", accelerators="H100"))
    assert states(lab) == {"old": "running", "three": "waiting", "two": "running"}
    end(lab, "old")
    end(lab, "two")
    take(lab, TOP, mid, OTHER)
    assert states(lab) == {"three": "running"}


# Debts -------------------------------------------------------------------------------------------


def test_borrowing_beyond_a_new_limit_is_a_debt(lab: Api) -> None:
    lab.submit(job("big", 4, 2, queue="lab", accelerators="H100"))
    assert debts(lab, TOP, with_more(LAB, "borrow: {H100: 0}"), OTHER) == [
        (
            "A debt: queue lab borrows 4 H100, 4 more than it may (0). Nothing is ended for it;"
            " nothing that adds to it starts, and it falls as work ends."
        )
    ]


def test_work_that_stops_too_slowly_for_a_lender_becomes_a_debt(lab: Api) -> None:
    """Pods of lab take 30 s to stop; a lender that wants its devices back in 10 s has no use."""
    lab.submit(job("big", 4, 2, queue="lab", accelerators="H100"))
    soon = with_more(OTHER, "reclaimWithin: 10s")
    answer = take(lab, TOP, LAB, soon, dry_run=True)
    assert said(answer)[0] == "Queue other: reclaimWithin changes from 10m to 10s."
    assert debts(lab, TOP, LAB, soon) == [
        (
            "A debt: 8 H100 in queue lab cannot be taken back, 4 more than it is guaranteed (4)."
            " Nothing is ended for it; nothing that adds to it starts."
        )
    ]


def test_devices_on_one_node_that_others_hold_are_a_debt(lab: Api) -> None:
    for node in ("n1", "n2"):
        body = pod(f"on-{node}", 2, queue="lab", accelerators="H100")
        body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        lab.submit(body)
    (said_of,) = debts(lab, TOP, LAB, with_more(OTHER, "placeable: {H100: 4}"))
    assert said_of == (
        "A debt: of 4 H100 that queue other is guaranteed together on single nodes, 4 are not to be"
        " had so, as other work lies between. Nothing is ended for it; nothing that adds to it"
        " starts, and it falls as work ends."
    )


def test_what_is_not_lent_and_not_free_is_a_debt(lab: Api) -> None:
    lab.submit(job("big", 3, 2, queue="lab", accelerators="H100"))
    (said_of,) = debts(lab, TOP, LAB, with_more(OTHER, "lend: {H100: 1}"))
    assert said_of == (
        "A debt: 3 H100 are not lent, most of them by queue other, and 1 of them are not free."
        " Nothing is ended for it; nothing that adds to it starts, and it falls as work ends."
    )


def test_what_cannot_be_taken_back_in_a_queue_above_others_stays_a_debt(lab: Api) -> None:
    lab.submit(pod("n", 4, queue="lab", type="notebook", accelerators="H100"))
    inner = queue("lab", "parent: acme, guarantee: {H100: 2}")
    (said_of,) = debts(
        lab, TOP, inner, queue("x", "parent: lab"), queue("y", "parent: acme, guarantee: {H100: 6}")
    )
    assert said_of.startswith(
        "A debt: 4 H100 in queue lab cannot be taken back, 2 more than it is guaranteed (2)."
    )


def test_queues_that_move_apart_and_share_devices_are_a_debt(lab: Api) -> None:
    two = queue("a", "parent: mid"), queue("b", "parent: mid")
    take(lab, TOP, queue("mid", "parent: acme"), *two)
    asked = {"memory": "10Gi", "accelerators": "A100", "type": "batch", "isolation": "shared"}
    lab.submit(
        *(pod(f"p{n}", 1, queue=name, recreate="true", **asked) for n, name in enumerate("abab"))
    )
    apart = queue("a", "parent: acme"), queue("b", "parent: acme")
    listed = [each["text"] for each in take(lab, TOP, *apart)["meanings"] if each["debt"]]
    assert len(listed) == 1
    assert listed[0].startswith(
        "A debt: workloads on nodes in no pool that share devices with other queues:"
    )
