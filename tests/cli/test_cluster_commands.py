"""What the commands for a cluster say when they are asked in a wrong way."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from shoal.cli.app import run


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
