"""What the commands for a cluster say when they are asked in a wrong way."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from shoal.cli.app import run
from shoal.cli.cluster import Access, look, read_written
from shoal.core.policies import Policy
from shoal.kubernetes.picture import Picture
from shoal.kubernetes.watching.askers import Askers
from shoal.kubernetes.wire.kinds import NAMESPACES, NODES, PODS
from shoal.objects.files import Written
from tests.kubernetes.manifests import node, pod
from tests.kubernetes.noted import Api, by, guarded
from tests.kubernetes.rig import CATALOG, Rig


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """The scheduler sets how its process logs."""
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("check", "write files, --consistency, or --scheduler URL"),
        ("check --scheduler nowhere", "expects such as http://127.0.0.1:9464, found 'nowhere'"),
        ("release --kubeconfig none", "write --yes if that is meant"),
        ("scheduler --listen 9464", "--listen expects HOST:PORT"),
        ("scheduler --listen 127.0.0.1:99999", "--listen expects HOST:PORT"),
        ("scheduler --refused-after -1", "--refused-after expects seconds from 0, found -1"),
        ("scheduler --policy best", "--policy expects one of"),
        ("get nodes --policy best --kubeconfig none", "--policy expects one of"),
        ("scheduler --controllers a:b:c", '--controllers: found "a:b:c"; write NAMESPACE:NAME'),
        ("webhook --controllers A", '--controllers: found "A"; write NAMESPACE:NAME'),
        ("get pods --controllers a/b --kubeconfig none", '--controllers: found "a/b"'),
    ],
)
def test_a_wrong_question_is_answered_with_what_to_write(
    command: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("shoal", command.split()) == 2
    assert sentence in capsys.readouterr().err


def test_no_kubeconfig_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "none")
    for command in ("get pods", "top", "why a", "check --consistency", "scheduler"):
        assert run("shoal", [*command.split(), "--kubeconfig", missing]) == 1, command
        assert f"there is no kubeconfig at {missing}" in capsys.readouterr().err


POOLS = """\
apiVersion: shoal.dev/v1alpha1
kind: AcceleratorPool
metadata: {name: shared}
spec:
  nodes: {matchLabels: {pool: shared}}
  types: [notebook, batch]
  sharedBetweenQueues: true
"""


def test_the_pools_of_a_cluster_are_those_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pools.yaml"
    file.write_text(POOLS)
    rig = Rig()
    for name, labels in (("n1", {"pool": "shared"}), ("n2", {})):
        body = node(name, 2)
        body["metadata"]["labels"] |= labels
        rig.put(NODES, body)

    def looked(access: Access) -> Picture:
        written = read_written(access.queues, CATALOG)
        return Picture(rig.truth(), CATALOG, Policy("pack"), 1, written)

    monkeypatch.setattr("shoal.cli.on_cluster.look", looked)

    def get(what: str) -> list[list[str]]:
        asked = ["get", *what.split(), "--queues", str(file), "--kubeconfig", "none"]
        assert run("shoal", asked) == 0
        return [line.split() for line in capsys.readouterr().out.splitlines()]

    assert get("pools") == [
        ["NAME", "TYPES", "SHARED", "NODES", "DEVICES", "FREE"],
        ["shared", "notebook,batch", "yes", "1", "2", "2"],
        ["no", "pool", "training,inference,notebook,batch", "no", "1", "2", "2"],
    ]
    assert [row[:2] for row in get("nodes")] == [["NODE", "POOL"], ["n1", "shared"], ["n2", "-"]]
    assert [row[0] for row in get("nodes --pool shared")] == ["NODE", "n1"]
    assert len(get("pools shared")) == 2


def test_the_scheduler_and_those_who_look_are_given_the_pools_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pools.yaml"
    file.write_text(POOLS)
    given: list[Any] = []
    monkeypatch.setattr("shoal.cli.scheduler._run", lambda *asked: given.append(asked))
    monkeypatch.setattr("shoal.kubernetes.api.identity.find_identity", lambda *_: None)
    assert run("shoal", ["scheduler", "--queues", str(file)]) == 0
    ((_, _, options),) = given
    assert [pool.name for pool in options.scheduler.written.pools] == ["shared"]

    async def take(
        client: object, catalog: object, policy: object, written: Written, _: object
    ) -> None:
        given.append(written)

    monkeypatch.setattr("shoal.kubernetes.picture.take_picture", take)
    monkeypatch.setattr("shoal.cli.cluster.call", lambda _, work: asyncio.run(work(None)))
    look(Access(queues=(file,)))
    assert [pool.name for pool in given[-1].pools] == ["shared"]


def test_who_asked_is_shown_of_workloads_and_by_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = Rig()
    rig.put(NAMESPACES, guarded())
    for name, user in (("hers", "ann"), ("old", "")):
        rig.put(PODS, by(pod(name), user) if user else pod(name))

    def looked(_: Access) -> Picture:
        truth = rig.truth()
        askers = Askers(truth)
        asyncio.run(askers.begin(Api()))  # type: ignore[arg-type]
        return Picture(truth, CATALOG, Policy("pack"), 1, askers=askers)

    monkeypatch.setattr("shoal.cli.on_cluster.look", looked)
    assert run("shoal", ["get", "workloads", "-o", "wide", "--kubeconfig", "none"]) == 0
    heading, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert heading[-1] == "USER"
    assert {row[1]: row[-1] for row in rows} == {"hers": "ann", "old": "-"}
    for name, words in (("hers", "asked by ann"), ("old", "")):
        assert run("shoal", ["why", name, "-n", "ns", "--kubeconfig", "none"]) == 0
        said = capsys.readouterr().out
        assert words in said
        assert ("asked by" in said) == bool(words)
