"""Who asked for a pod: read from notes, up the chain of owners, and from nothing else."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest

from shoal.kubernetes.watching.askers import NOBODY, SETTLES, Asker, Askers
from shoal.kubernetes.watching.controllers import Controllers
from shoal.kubernetes.wire.kinds import JOBS, NAMESPACES, PODS, REPLICA_SETS
from tests.kubernetes.fake_api import in_loop
from tests.kubernetes.manifests import Body, job, namespace, pod, replica_set
from tests.kubernetes.noted import (
    ANN,
    BOB,
    INSTALLED,
    Api,
    by,
    guarded,
    made,
    owned,
    owner,
    stamp,
)
from tests.kubernetes.rig import START, Rig


async def askers(rig: Rig, api: Api | None = None, *accounts: str) -> Askers:
    """What is known once everything was read."""
    known = Askers(rig.truth(), Controllers(accounts))
    await known.begin(api or Api())  # type: ignore[arg-type]
    return known


def asker(known: Askers, name: str) -> Asker | None:
    found = known._truth.pods.get(name, "ns")
    assert found is not None
    return known.of(found)


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.put(NAMESPACES, guarded())
    return rig


@in_loop
async def test_a_person_and_a_service_account_ask_for_what_they_create(rig: Rig) -> None:
    rig.put(PODS, by(pod("a"), "ann", "leads"))
    rig.put(PODS, by(pod("b"), "system:serviceaccount:ns:ci"))
    known = await askers(rig)
    assert asker(known, "a") == ANN
    found = asker(known, "b")
    assert found is not None
    assert found.subjects == {
        "user:system:serviceaccount:ns:ci",
        "serviceaccount:ns:ci",
    }
    assert ANN.subjects == {"user:ann", "group:leads"}
    assert NOBODY.subjects == frozenset()


@in_loop
async def test_what_a_controller_makes_is_asked_for_by_who_asked_for_its_owner(rig: Rig) -> None:
    jobs = by(job("j", 1), "ann", "leads")
    rig.put(JOBS, jobs)
    rig.put(PODS, made(pod("a", owner=jobs), "job-controller"))
    api = Api()
    known = await askers(rig, api)
    assert asker(known, "a") == ANN
    assert api.reads == []


@in_loop
async def test_owners_above_are_read_once_for_all_that_is_there(rig: Rig) -> None:
    for n in range(3):
        jobs = owned(job(f"j{n}", 2), "jobset.x-k8s.io/v1alpha2", "JobSet", "set")
        jobs["metadata"]["annotations"] = {}
        by(jobs, "system:serviceaccount:jobset-system:manager")
        jobs["metadata"]["annotations"]["shoal.dev/owner"] = "uid-set"
        rig.put(JOBS, jobs)
        for m in range(2):
            rig.put(PODS, made(pod(f"p{n}{m}", owner=jobs), "job-controller"))
    api = Api(by(owner("set"), "ann", "leads"))
    known = await askers(rig, api, "jobset-system:manager")
    assert {asker(known, f"p{n}{m}") for n in range(3) for m in range(2)} == {ANN}
    assert api.reads == ["jobsets ns/set"]
    # Whoever is not named as a controller asks for himself, and nothing is read.
    alone = Api(by(owner("set"), "ann", "leads"))
    found = asker(await askers(rig, alone), "p00")
    assert found == Asker("system:serviceaccount:jobset-system:manager")
    assert alone.reads == []


HERS = ("ann", "leads", "deployment-")
HERS_WRITTEN = {"user": "ann", "groups": "leads"}


@in_loop
async def test_deployments_are_noted_under_keys_that_their_replica_sets_do_not_read(
    rig: Rig,
) -> None:
    sets = owned(replica_set("web-1", 2), "apps/v1", "Deployment", "web")
    rig.put(REPLICA_SETS, made(by(sets, *HERS), "deployment-controller"))
    rig.put(PODS, made(pod("a", owner=sets, owner_kind="ReplicaSet"), "replicaset-controller"))
    api = Api(by(owner("web"), *HERS))
    known = await askers(rig, api)
    assert asker(known, "a") == ANN
    assert api.reads == ["deployments ns/web"]


@in_loop
async def test_what_was_made_of_a_deployment_before_another_changed_it_is_not_his(
    rig: Rig,
) -> None:
    """Eve changes Ann's Deployment, so its new ReplicaSet is hers; then Ann changes it again."""
    eves = owned(replica_set("web-2", 2), "apps/v1", "Deployment", "web")
    by(eves, "eve", prefix="deployment-")
    rig.put(REPLICA_SETS, made(eves, "deployment-controller"))
    rig.put(PODS, made(pod("a", owner=eves, owner_kind="ReplicaSet"), "replicaset-controller"))
    api = Api(by(owner("web"), "eve", prefix="deployment-"))
    known = await askers(rig, api)
    assert asker(known, "a") == Asker("eve")
    api.objects["web"] = by(owner("web"), *HERS)
    rig.change(REPLICA_SETS, "web-2", "ns", metadata={"generation": 2})
    assert asker(known, "a") is None
    await known._read_wanted(api)  # type: ignore[arg-type]
    assert asker(known, "a") == NOBODY
    assert asker(await askers(rig, api), "a") == NOBODY
    # Where its controller says that it is made of what she asked for, it is hers.
    copied = {f"shoal.dev/deployment-{key}": value for key, value in HERS_WRITTEN.items()}
    rig.change(REPLICA_SETS, "web-2", "ns", metadata={"annotations": copied})
    assert asker(known, "a") is None
    await known._read_wanted(api)  # type: ignore[arg-type]
    assert asker(known, "a") == ANN


@in_loop
async def test_leaders_of_a_set_are_owners_too(rig: Rig) -> None:
    lead = owned(pod("lead"), "apps/v1", "StatefulSet", "leads")
    rig.put(PODS, made(lead, "statefulset-controller"))
    worker = owned(pod("w"), "apps/v1", "StatefulSet", "workers")
    rig.put(PODS, made(worker, "statefulset-controller"))
    workers = owned(owner("workers"), "v1", "Pod", "lead")
    by(workers, "system:serviceaccount:lws-system:lws")
    workers["metadata"]["annotations"]["shoal.dev/owner"] = "uid-lead"
    api = Api(workers, by(owner("leads"), "bob"))
    known = await askers(rig, api, "lws-system")
    assert asker(known, "w") == BOB
    assert sorted(api.reads) == ["statefulsets ns/leads", "statefulsets ns/workers"]


@pytest.mark.parametrize("who", ["eve", "system:serviceaccount:ns:default", "kube-system:x"])
@in_loop
async def test_a_forged_owner_is_never_followed(rig: Rig, who: str) -> None:
    jobs = by(job("j", 1), "ann", "leads")
    rig.put(JOBS, jobs)
    rig.put(PODS, by(pod("a", owner=jobs), who))
    assert asker(await askers(rig), "a") == Asker(who)


@in_loop
async def test_what_a_controller_made_is_nobodys_under_an_owner_that_it_was_not_made_for(
    rig: Rig,
) -> None:
    boss = by(job("boss", 1), "ann", "leads")
    mine = by(job("mine", 3), "eve")
    for each in (boss, mine):
        rig.put(JOBS, each)
    for name in ("moved", "orphan", "renamed"):
        rig.put(PODS, made(pod(name, owner=mine), "job-controller"))
    reference = rig.get(PODS, "moved", "ns")["metadata"]["ownerReferences"][0]
    stolen = [reference | {"name": "boss", "uid": "uid-boss"}]
    rig.change(PODS, "moved", "ns", metadata={"ownerReferences": stolen})
    rig.change(PODS, "orphan", "ns", metadata={"ownerReferences": []})
    same_uid = [reference | {"name": "boss"}]
    rig.change(PODS, "renamed", "ns", metadata={"ownerReferences": same_uid})
    known = await askers(rig)
    assert [asker(known, name) for name in ("moved", "orphan")] == [NOBODY, NOBODY]
    assert asker(known, "renamed") is None  # there is no Job of that name and uid


@in_loop
async def test_only_the_owner_itself_counts_and_not_another_of_its_name(rig: Rig) -> None:
    rig.put(PODS, made(owned(pod("a"), "batch/v1", "CronJob", "x"), "cronjob-controller"))
    odd = owned(pod("b"), "batch/..", "CronJob", "x")
    rig.put(PODS, made(odd, "cronjob-controller"))
    rig.put(PODS, made(owned(pod("c"), "example.com/v1", "Thing", "x"), "cronjob-controller"))
    api = Api(by(owner("x", uid="uid-another"), "ann"))
    known = await askers(rig, api)
    assert [asker(known, name) for name in "abc"] == [NOBODY, NOBODY, NOBODY]
    assert api.reads == ["cronjobs ns/x"]


@in_loop
async def test_an_owner_is_read_again_for_what_was_created_since(rig: Rig) -> None:
    """Who changes a StatefulSet asks for the pods that are made of it from then on."""

    def of_set(name: str) -> None:
        body = owned(pod(name), "apps/v1", "StatefulSet", "s")
        rig.put(PODS, made(body, "statefulset-controller"))

    of_set("a")
    api = Api(by(owner("s"), "ann", "leads"))
    known = await askers(rig, api)
    api.objects["s"] = by(owner("s"), "bob")
    of_set("b")
    assert asker(known, "b") is None
    await known._read_wanted(api)  # type: ignore[arg-type]
    assert (asker(known, "a"), asker(known, "b")) == (ANN, BOB)
    assert len(api.reads) == 2


@in_loop
async def test_a_job_that_its_controller_changed_is_asked_about_again(rig: Rig) -> None:
    jobs = owned(job("j", 1), "batch/v1", "CronJob", "c")
    jobs["metadata"] |= {"annotations": {}, "generation": 1}
    rig.put(JOBS, made(jobs, "cronjob-controller"))
    rig.put(PODS, made(pod("a", owner=jobs), "job-controller"))
    api = Api(by(owner("c"), "ann", "leads"))
    known = await askers(rig, api)
    api.objects["c"] = by(owner("c"), "bob")
    assert asker(known, "a") == ANN
    rig.change(JOBS, "j", "ns", metadata={"generation": 2})
    assert asker(known, "a") is None
    await known._read_wanted(api)  # type: ignore[arg-type]
    assert asker(known, "a") == BOB


LATE = START + timedelta(hours=1)


@pytest.mark.parametrize(
    ("body", "installed", "counts"),
    [
        (guarded(), INSTALLED, True),
        (guarded(), None, False),
        (guarded(), LATE, False),
        (guarded(labelled=LATE), INSTALLED, False),
        (guarded(labelled=START - SETTLES / 2), INSTALLED, False),
        (guarded(labelled=START, created=START), INSTALLED, True),
        (guarded(managedFields=[]), INSTALLED, False),
        (guarded(labels={"shoal.dev/mode": "observe"}), INSTALLED, False),
        (namespace("other"), INSTALLED, False),
    ],
)
@in_loop
async def test_a_note_counts_only_where_admission_acted_before(
    body: Body, installed: datetime | None, counts: bool
) -> None:
    rig = Rig()
    rig.put(NAMESPACES, body)
    rig.put(PODS, by(pod("a"), "ann", "leads"))
    known = await askers(rig, Api(installed=installed))
    assert asker(known, "a") == (ANN if counts else NOBODY)


@in_loop
async def test_an_owner_from_before_leads_to_nobody(rig: Rig) -> None:
    jobs = by(job("j", 1), "ann")
    jobs["metadata"]["creationTimestamp"] = stamp(INSTALLED - timedelta(days=1))
    rig.put(JOBS, jobs)
    rig.put(PODS, made(pod("a", owner=jobs), "job-controller"))
    rig.put(PODS, pod("unnoted"))
    known = await askers(rig)
    assert (asker(known, "a"), asker(known, "unnoted")) == (NOBODY, NOBODY)


@in_loop
async def test_who_cannot_be_read_is_nobody_until_he_can(rig: Rig) -> None:
    rig.put(PODS, made(owned(pod("a"), "batch/v1", "CronJob", "x"), "cronjob-controller"))
    api = Api(by(owner("x"), "ann", "leads"))
    api.refuses = True
    known = await askers(rig, api)
    assert asker(known, "a") == NOBODY
    api.refuses = False
    told: list[str] = []

    def tell(uids: Iterable[str]) -> None:
        told.extend(uids)

    known._try_again(tell)
    assert told == ["uid-a"]
    assert asker(known, "a") is None
    await known._read_wanted(api)  # type: ignore[arg-type]
    assert asker(known, "a") == ANN


@in_loop
async def test_what_is_wanted_while_it_runs_is_read_and_told(rig: Rig) -> None:
    api = Api(by(owner("x"), "ann", "leads"))
    known = await askers(rig, api)
    told: asyncio.Queue[Any] = asyncio.Queue()
    running = asyncio.create_task(known.run(api, told.put_nowait))  # type: ignore[arg-type]
    rig.put(PODS, made(owned(pod("a"), "batch/v1", "CronJob", "x"), "cronjob-controller"))
    assert asker(known, "a") is None
    assert await told.get() == {"uid-a"}
    assert asker(known, "a") == ANN
    running.cancel()


@pytest.mark.parametrize("text", ["", "a b", "A", "a:b:c", "system:serviceaccount:a:b", "-a", "a:"])
def test_controllers_are_service_accounts(text: str) -> None:
    with pytest.raises(ValueError, match="write NAMESPACE:NAME"):
        Controllers((text,))


def test_controllers_are_kubernetes_own_and_those_that_are_named() -> None:
    known = Controllers(("jobset-system:manager", "lws-system"))
    for name in (
        *("kube-system:job-controller", "kube-system:x", "jobset-system:manager"),
        *("lws-system:a", "lws-system:b"),
    ):
        assert known.include(f"system:serviceaccount:{name}")
    assert known.include("system:kube-controller-manager")
    for name in ("jobset-system:default", "lws-system-2:a", "kube-systems:a"):
        assert not known.include(f"system:serviceaccount:{name}")
    for name in ("kube-system:job-controller", "ann", "", "system:kube-controller-managers"):
        assert not known.include(name)
