import subprocess
import sys
from importlib.metadata import version

import pytest

from shoal.cli.app import ASKED_WRONGLY, COMMANDS, DONE, FAILED, INTERRUPTED, run
from shoal.cli.errors import CannotError, UsageError

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("tokens", [[], ["--help"], ["-h"]])
def test_the_help_lists_every_command(tokens: list[str], capsys: Capture) -> None:
    assert run("shoal", tokens) == DONE
    out, err = capsys.readouterr()
    assert "Usage: shoal COMMAND" in out
    assert all(name in out for name, _, _ in COMMANDS)
    assert "\x1b" not in out
    assert not err


@pytest.mark.parametrize("command", [name for name, _, _ in COMMANDS])
def test_every_command_has_help(command: str, capsys: Capture) -> None:
    assert run("kubectl shoal", [command, "--help"]) == DONE
    assert f"Usage: kubectl shoal {command}" in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys: Capture) -> None:
    assert run("shoal", ["--version"]) == DONE
    assert capsys.readouterr().out.strip() == version("shoal")


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        (["bogus"], 'shoal: there is no command "bogus"; write one of: '),
        (
            ["catalog", "bogus"],
            'shoal: there is no command "bogus"; write one of: check, explain, list, matrix, show.',
        ),
        (["--bogus"], 'shoal: there is no command "--bogus"; write one of: '),
        (["simulate"], 'shoal: Command "simulate" parameter --nodes requires an argument.'),
        (
            "simulate --nodes a --pods b --policy fgd -o xml".split(),
            'shoal: Invalid value "xml" for -o. Choose from: "table", "json", "csv".',
        ),
        (
            "simulate --nodes a --pods b --policy fgd more".split(),
            'shoal: did not expect "more"; see --help.',
        ),
        (
            "simulate --nodes a --pods b --policy fgd --bogus".split(),
            "shoal: Unknown option: --bogus.",
        ),
        (
            "simulate --nodes a --pods b --policy fgd --processes two".split(),
            (
                "shoal: Invalid value for --processes: expected a whole number, in digits 0-9,"
                ' found "two".'
            ),
        ),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_status_2(
    tokens: list[str], sentence: str, capsys: Capture
) -> None:
    assert run("shoal", tokens) == ASKED_WRONGLY
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(sentence)
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (UsageError("write it otherwise."), ASKED_WRONGLY, "shoal: write it otherwise.\n"),
        (CannotError("the disk\nis full."), FAILED, "shoal: the disk is full.\n"),
        (KeyboardInterrupt(), INTERRUPTED, "shoal: interrupted.\n"),
    ],
)
def test_errors_of_commands_become_sentences_and_a_status(
    error: BaseException,
    status: int,
    sentence: str,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(_: str) -> list[str]:
        raise error

    monkeypatch.setattr("shoal.cli.simulate.parse_policies", fails)
    assert run("shoal", "simulate --nodes a --pods b --policy fgd".split()) == status
    assert capsys.readouterr().err == sentence


def test_the_help_loads_no_command_and_nothing_heavy() -> None:
    program = (
        "import sys; from shoal.cli.app import run; run('shoal', ['--help']);"
        "print(sorted(m for m in sys.modules if m.startswith('shoal.')), 'numpy' in sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert answer.stdout.splitlines()[-1] == (
        "['shoal.cli', 'shoal.cli.app', 'shoal.cli.errors'] False"
    )


def test_a_reader_that_has_enough_is_no_error() -> None:
    program = (
        "import os, sys; from shoal.cli import app; os.close(0); r, w = os.pipe(); os.close(r);"
        "os.dup2(w, 1); sys.exit(app.run('shoal', ['--help']))"
    )
    answer = subprocess.run([sys.executable, "-c", program], check=False, stderr=subprocess.PIPE)
    assert answer.returncode == FAILED
    assert answer.stderr == b""
