"""The commands against a real server on a Unix socket: what people see, word for word."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from shoal.cli.app import run
from shoal.cli.output import cell, plain
from shoal.core import events as ev
from shoal.model.workload import Outcome
from shoal.texts.language import Language
from shoal.texts.screens import screen_text
from tests.cli.terminal import Terminal
from tests.objects.written import queue
from tests.server.rig import MINUTE_US, Rig, job, platform, pod, served

Capture = pytest.CaptureFixture[str]

KINDS = "Pod, Job, Deployment, ReplicaSet, StatefulSet, JobSet, PyTorchJob, RayJob, Notebook"
GOLDEN = Path(__file__).with_name("golden")


@dataclass
class Shell:
    """Runs commands against a platform."""

    rig: Rig
    socket: Path
    capture: Capture

    def __call__(self, line: str, status: int = 0) -> str:
        """Run a command line and return what it prints, errors last."""
        assert run("shoal", line.split()) == status, self.capture.readouterr()
        out, err = self.capture.readouterr()
        return out + err


@pytest.fixture
def shell(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    with (
        platform(tmp_path) as rig,
        served(rig.standing, tmp_path / "run" / "shoal.sock") as path,
    ):
        monkeypatch.setenv("SHOAL_SOCKET", str(path))
        yield Shell(rig, path, capsys)
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def busy(shell: Shell, tmp_path: Path) -> Shell:
    """A platform with work that runs and work that waits."""
    manifests = [
        job("llm-7b", 4, 2, accelerators="H100"),
        pod("sketch", memory="10Gi", type="notebook", accelerators="A100"),
        job("bert-sweep", 4, 2, queue="nlp", accelerators="H100"),
    ]
    file = tmp_path / "work.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    shell(f"submit {file}")
    shell.rig.now_us += 72 * MINUTE_US
    return shell


def golden(name: str, printed: str) -> None:
    """Compare what is printed with the file of that name."""
    assert printed == (GOLDEN / f"{name}.txt").read_text()


def shown(text: str) -> str:
    """What is expected, without the indentation of the test."""
    return dedent(text).lstrip("\n")


def test_submit_says_what_was_taken_in(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(yaml.safe_dump_all([job("a"), pod("b")]))
    assert shell(f"submit {file} -n team") == "team/a was submitted\nteam/b was submitted\n"
    assert shell(f"submit -f {file} --dry-run") == (
        "default/a could be submitted\ndefault/b could be submitted\n"
    )


def test_submit_takes_a_line(shell: Shell) -> None:
    line = "submit --queue vision --devices 2 --pods 2 --accelerators H100 --type training --name x"
    assert shell(line) == "default/x was submitted\n"
    (row,) = json.loads(shell("get workloads x -o json"))
    assert (row["queue"], row["type"], row["pods"], row["devices"]) == ("vision", "training", 2, 4)
    said = shell("submit -q vision --memory 10Gi --type notebook --cpu 4 --host-memory 8Gi")
    assert said.startswith("default/notebook-")
    (row,) = json.loads(shell("get workloads --type notebook -o json"))
    (pods,) = row["pod_sets"]
    assert (pods["memory_mib"], pods["cpu_milli"], pods["host_memory_mib"]) == (10240, 4000, 8192)


def test_a_line_may_say_how_urgent_and_how_long_it_is(shell: Shell) -> None:
    shell("submit -q vision --devices 1 --type training --priority urgent --run 2h --name x")
    (row,) = json.loads(shell("get workloads x -o json"))
    assert row["priority"] == 100
    workload = shell.rig.replica.story.lives[row["uid"]].workload
    assert (workload.run_us, workload.recreated) == (2 * 60 * MINUTE_US, True)
    said = shell("submit -q vision --priority top --name y", 2)
    assert "'top', which is no priority of queue vision; it has: normal, urgent" in said


def test_submit_says_what_is_wrong_with_file_and_line(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(
        shown(
            """
            apiVersion: v1
            kind: Pod
            metadata:
              name: a
              annotations:
                shoal.dev/queue: visoin
                shoal.dev/memory: 10Gi
            spec: {containers: [{name: main}]}
            ---
            apiVersion: apps/v1
            kind: DaemonSet
            """
        )
    )
    assert shell(f"submit {file}", 2) == shown(
        f"""
        {file}:6: shoal.dev/queue: there is no queue visoin; write one of serving, vision, nlp
        {file}:10: pods of a apps/v1 DaemonSet are not known; write one of {KINDS}
        shoal: 2 problems; nothing was submitted.
        """
    )
    assert shell("get workloads -o name") == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("submit", "nothing to submit; write files, or a line such as --devices 2"),
        ("submit nowhere.yaml", "nowhere.yaml cannot be read: No such file or directory."),
        ("submit --devices x", "Invalid value for --devices: expected a whole number, in digits"),
        ("submit --devices 1.5", "Invalid value for --devices: expected a whole number, in digits"),
        ("submit --pods 1e1", "Invalid value for --pods: expected a whole number, in digits 0-9"),
        ("submit --pods 0", "--pods expects how many pods there are, from 1, found 0."),
        ("submit --pods=-3", "--pods expects how many pods there are, from 1, found -3."),
        ("decisions --last 1.5", "Invalid value for --last: expected a whole number, in digits"),
        ("submit --devices 2", "1 problem; nothing was submitted."),
        ("cancel", "cancel expects names; write shoal cancel NAME."),
        ("get", "get expects"),
        ("get things", 'there is no command "things"; write one of: device, devices'),
        ("get workloads --state happy", "state: input should be 'live', 'waiting'"),
        ("why", 'Command "why" parameter NAME requires an argument.'),
        ("why x -o wide", "why has no -o wide; write table, json or yaml."),
        ("decisions --last 1001", "--last expects a number from 0 to 1000, found 1001."),
        ("get nodes --lang de", 'Invalid value "de" for --lang.'),
    ],
)
def test_what_is_asked_wrongly_has_status_2(shell: Shell, line: str, said: str) -> None:
    if line == "get":
        assert "List workloads" in shell(line)
        return
    last = shell(line, 2).splitlines()[-1]
    assert last.startswith(f"shoal: {said}")


def test_what_cannot_be_done_has_status_1(busy: Shell) -> None:
    assert busy("why nope", 1) == "shoal: there is no workload nope; see shoal get workloads.\n"
    assert busy("cancel nope", 1).startswith("shoal: there is no workload nope")
    assert busy("get pods", 1) == "shoal: pods are a cluster's; write get workloads.\n"
    assert busy("queue nope", 1) == (
        "shoal: there is no queue nope; there are: acme, research, vision, nlp, serving.\n"
    )


def test_no_platform_has_status_3(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    missing = tmp_path / "none.sock"
    assert shell(f"get nodes --socket {missing}", 3) == (
        f"shoal: no platform of yours runs: there is no {missing}. Start one: shoal up.\n"
    )
    monkeypatch.delenv("SHOAL_SOCKET")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    said = shell("get nodes", 3)
    assert said.startswith("shoal: there is no platform to ask: no socket")
    assert "Start one with shoal up, or write --socket FILE or --kubeconfig FILE." in said


def test_get_workloads(busy: Shell) -> None:
    golden("workloads", busy("get workloads"))
    assert busy("get workloads -o name --state waiting") == "default/bert-sweep\n"
    wide = busy("get workloads llm-7b -o wide")
    assert "2026-11-29 10:00:00   n1,n2   H100-SXM5-80GB,H100-PCIE-80GB" in wide


def test_get_nodes_pools_and_devices(busy: Shell) -> None:
    golden("nodes", busy("get nodes"))
    golden("pools", busy("get pools"))
    golden("devices-pool-shared", busy("get devices --pool shared"))


def test_queue_shows_the_tree(busy: Shell) -> None:
    golden("queue", busy("queue"))
    assert busy("queue vision -o name") == "vision\n"


def test_top_shows_who_holds_what(busy: Shell) -> None:
    golden("top", busy("top"))


def test_top_counts_a_queue_that_closes_below_another_once(busy: Shell, tmp_path: Path) -> None:
    file = tmp_path / "alone.yaml"
    file.write_text(queue("acme", "guarantee: {H100: 32}"))
    said = busy(f"apply {file}")
    assert "Queue vision closes: what runs in it" in said
    (vision,) = (each for each in busy("top").splitlines() if "H100" in each and "vision" in each)
    assert vision.split() == ["H100-SXM5-80GB", "vision", "8", "100%"]
    assert "acme" not in busy("top")
    (acme,) = (each for each in json.loads(busy("get queues -o json")) if each["name"] == "acme")
    assert (acme["leaf"], acme["running"]) == (True, 2)


def test_why_says_stage_position_obstacles_and_holders(busy: Shell) -> None:
    golden("why-bert-sweep", busy("why bert-sweep"))
    assert busy("why llm-7b").splitlines()[:2] == [
        "llm-7b · training · 8 devices in 2 pods · queue vision · running",
        "  place       It runs on n1, n2.",
    ]
    assert json.loads(busy("why bert-sweep -o json"))["fitting_nodes"] == 0


def test_why_says_of_a_replica_that_its_service_can_do_without_it(
    shell: Shell, tmp_path: Path
) -> None:
    web = job("web", queue="serving", type="inference", minimum="1")
    web |= {"apiVersion": "apps/v1", "kind": "Deployment"}
    web["spec"] = {"replicas": 2, "template": web["spec"]["template"]}
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(web))
    shell(f"submit {tmp_path / 'web.yaml'}")
    said = [shell(f"why web/{slot}") for slot in range(2)]
    assert said[0].startswith("web/0 · inference · 1 device · queue serving · ")
    assert said[1].startswith("web/1 · spare inference · 1 device · queue serving · ")
    assert "可让出的推理" in shell("why web/1 --lang zh")


def test_why_in_chinese_and_in_another_time_zone(
    busy: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    lines = busy("why bert-sweep").splitlines()
    assert lines[0] == (
        "bert-sweep · 训练 · 2 个 Pod 共 8 张设备 · 队列 nlp · 已等待 1h12m"
        " · 在队列中排第 1，共 1 个"  # noqa: RUF001 - Chinese punctuation
    )
    assert lines[2] == "              2 个节点完全空闲的设备数量不足"
    assert "2026-11-29 18:00:00" in lines[-1]
    assert busy("get workloads --lang en").startswith("NAMESPACE")
    golden("workloads-chinese", busy("get workloads --state waiting"))


def test_a_name_in_two_namespaces_is_asked_for(shell: Shell) -> None:
    for namespace in ("a", "b"):
        shell(f"submit -q vision --devices 1 --name same -n {namespace}")
    assert shell("why same", 1) == (
        "shoal: same is in the namespaces a, b; write -n NAMESPACE as well.\n"
    )
    assert shell("why same -n b").startswith("same · batch")


QUEUES = """\
apiVersion: shoal.dev/v1alpha1
kind: AcceleratorQueue
metadata: {name: acme}
---
apiVersion: shoal.dev/v1alpha1
kind: AcceleratorQueue
metadata: {name: vision}
spec: {parent: acme, limit: {H100: 2}}
"""


def test_apply_says_what_it_means_and_check_what_it_would(busy: Shell, tmp_path: Path) -> None:
    file = tmp_path / "q.yaml"
    file.write_text(QUEUES)
    assert busy(f"check {file}") == "2 queues and 0 pools: nothing is wrong with them\n"
    would = busy(f"check {file} --against").splitlines()
    assert would == busy(f"apply --dry-run {file}").splitlines()
    assert would[-1] == "2 queues and 0 pools could be applied"
    assert "Queue serving goes; nothing runs in it." in would
    debt = "A debt: queue vision holds 8 H100, 6 above its limit of 2."
    assert any(line.startswith(debt) for line in would)
    assert "research" in busy("queue")
    done = busy(f"apply -f {file}").splitlines()
    assert done == [*would[:-1], "2 queues and 0 pools count from now on"]
    assert "research" not in busy("queue")
    assert "nlp (closing)" not in busy("queue")
    file.write_text(QUEUES.replace("vision", "new"))
    assert "Queue vision closes:" in busy(f"apply {file}")
    assert "\n  vision (closing) " in busy("queue")
    chinese = screen_text("closing", Language.CHINESE, name="vision")
    assert chinese in busy("queue --lang zh")
    file.write_text(QUEUES)
    busy(f"apply {file}")
    assert busy(f"apply {file}").splitlines()[0] == "nothing changes"


def test_files_that_are_wrong_are_not_applied(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "q.yaml"
    file.write_text(QUEUES.replace("limit", "limits"))
    for line in (f"check {file}", f"apply {file}", f"check {file} --against"):
        said = shell(line, 2).splitlines()
        assert said[0].startswith(f"{file}:8: spec.limits: is not known here; did you mean limit?")
        assert said[1] == "shoal: 1 problem in the files."
    file.write_bytes(b"\xff")
    assert f"{file} is not UTF-8" in shell(f"apply {file}", 2)
    assert "No such file" in shell(f"apply {tmp_path / 'none.yaml'}", 2)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("apply", "nothing to apply"),
        ("check", "say what to check"),
        ("check --against", "say what to check"),
        ("check q.yaml --consistency", "check files, or a cluster"),
    ],
)
def test_what_is_to_be_checked_or_applied_is_written(shell: Shell, line: str, said: str) -> None:
    assert said in shell(line, 2)


def test_cancel_ends_what_waits_and_what_runs(busy: Shell) -> None:
    assert busy("cancel llm-7b bert-sweep") == "default/llm-7b ends\ndefault/bert-sweep ends\n"
    assert busy("cancel llm-7b", 1) == "shoal: llm-7b has ended already.\n"
    assert "cancelled" in busy("get workloads llm-7b --state all")
    assert "cancelled" in busy("why llm-7b")


def test_release_and_resume(busy: Shell) -> None:
    assert busy("release") == ("Shoal decides nothing any more; what runs goes on. shoal resume\n")
    assert "Nothing is decided since Shoal was released." in busy("why bert-sweep")
    assert busy("resume") == "Shoal decides again\n"
    assert busy("resume --lang zh") == "Shoal 恢复决定\n"


def test_decisions_are_shown(busy: Shell) -> None:
    golden("decisions", busy("decisions"))
    assert busy("decisions --last 1 -o name").startswith("start/")


def test_decisions_are_followed(busy: Shell) -> None:
    command = [sys.executable, "-c", "from shoal.cli.app import main; main()"]
    command += "decisions -f --last 1 -o json".split()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines: list[Any] = [json.loads(process.stdout.readline())]
        busy.rig.step(ev.WorkloadEnded(busy.rig.now_us, busy.rig.uid("llm-7b"), Outcome.COMPLETED))
        lines.append(json.loads(process.stdout.readline()))
        process.terminate()
    assert [each["kind"] for each in lines] == ["start", "start"]
    assert lines[1]["text"] == "Starts default/bert-sweep on n1, n2."


def test_watch_prints_what_changes(busy: Shell) -> None:
    command = [sys.executable, "-c", "from shoal.cli.app import main; main()"]
    command += "get workloads --queue nlp -w -o json".split()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "]\n":
            pass
        busy.rig.step(ev.WorkloadEnded(busy.rig.now_us, busy.rig.uid("llm-7b"), Outcome.COMPLETED))
        changed = json.loads(process.stdout.readline())
        process.terminate()
    assert (changed["name"], changed["state"]) == ("bert-sweep", "running")


@pytest.mark.parametrize("kind", ["workloads", "queues", "pools", "nodes", "devices"])
def test_every_form_of_every_kind(busy: Shell, kind: str) -> None:
    rows = json.loads(busy(f"get {kind} -o json"))
    assert yaml.safe_load(busy(f"get {kind} -o yaml")) == rows
    assert len(busy(f"get {kind} -o name").splitlines()) == len(rows)
    for form in ("table", "wide"):
        assert len(busy(f"get {kind} -o {form}").splitlines()) == len(rows) + 1


def test_names_of_others_cannot_command_the_terminal(busy: Shell) -> None:
    assert plain("a\x1b[31mb\nc\u202e") == "a?[31mb?c?"
    assert cell("x\x07") == "x?"


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_names_the_commands(name: str, capsys: Capture) -> None:
    assert run("shoal", ["completion", name]) == 0
    script = capsys.readouterr().out
    assert "submit" in script
    assert "decisions" in script


def test_a_bomb_of_aliases_is_refused_before_it_is_written_out(
    shell: Shell, tmp_path: Path
) -> None:
    file = tmp_path / "bomb.yaml"
    levels = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))
    file.write_text(f"a0: &a0 [x, x, x, x, x, x, x, x, x]\n{levels}\n")
    assert "MiB when it is written out; submit less." in shell(f"submit {file}", 2)
    file.write_text("a: &a\n  b: *a\n")
    assert "cannot be written as JSON" in shell(f"submit {file}", 2)
    file.write_text("a: [\n")
    assert f"{file}:2 is not YAML" in shell(f"submit {file}", 2)
    file.write_text("- 1\n")
    assert f"{file}:1 is no manifest; write apiVersion" in shell(f"submit {file}", 2)


def test_colours_and_cutting_are_for_terminals_only(busy: Shell) -> None:
    command = [str(Path(sys.executable).with_name("shoal")), "get", "workloads"]
    piped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "\x1b" not in piped.stdout
    with Terminal(command, 100, 24, {"COLUMNS": "100"}) as terminal:
        shown = terminal.until(lambda text: "bert-sweep" in text and "…" in text)
        assert not terminal.screen.overflowed
    assert re.search("bert-sweep +nlp +training +waiting +1/1 +2 +8 +1h12m +too few.*…", shown)
