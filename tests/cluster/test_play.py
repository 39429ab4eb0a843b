"""`make cluster`: what it prints works, and Ctrl-C leaves nothing."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.harness import play
from tests.cluster.harness.processes import ROOT

pytestmark = pytest.mark.cluster


def test_what_it_prints_works_and_ctrl_c_removes_everything() -> None:
    told = ""
    with subprocess.Popen(
        [sys.executable, "-m", play.__name__, "--nodes", "2", "--dra-nodes", "1"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as player:
        try:
            assert player.stdout is not None
            while "Ctrl-C" not in told:
                line = player.stdout.readline()
                assert line, f"it ended after it had said:\n{told}"
                told += line
            commands = re.findall(r"^  (.+)$", told, re.MULTILINE)
            said = subprocess.run(
                ["sh", "-ec", "\n".join(commands)], check=True, capture_output=True, text=True
            ).stdout
            assert [row.split()[:2] for row in said.splitlines()[1:]] == [
                ["dra-0", "Ready"],
                ["gpu-0", "Ready"],
                ["gpu-1", "Ready"],
            ]
            player.send_signal(signal.SIGINT)
            assert player.wait(30) == 0
        finally:
            player.kill()
    (config,) = re.findall(r"KUBECONFIG=(\S+)", told)
    assert not Path(config).parent.exists()
