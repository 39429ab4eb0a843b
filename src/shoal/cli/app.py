"""`shoal` and `kubectl shoal`: the list of commands, and what they have in common."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from cyclopts import App, CycloptsError
from cyclopts.exceptions import UnknownCommandError, UnusedCliTokensError

from shoal.cli.errors import CannotError, NoPlatformError, UsageError

DONE, FAILED, ASKED_WRONGLY, NO_PLATFORM, INTERRUPTED = 0, 1, 2, 3, 130

HELP = """Run all of an organisation's accelerators as one shared, explainable pool.

Shoal decides who may use which piece of which device, and when; Kubernetes carries it out.

COMMAND --help explains a command."""

COMMANDS = (
    (
        "apply",
        "shoal.cli.apply:apply",
        "Have a running shoal up keep to changed pools and queues.",
    ),
    (
        "bound",
        "shoal.cli.bound:bound",
        "Say how much of a fleet any scheduler could allocate.",
    ),
    (
        "cancel",
        "shoal.cli.cancel:cancel",
        "End workloads of a running shoal up.",
    ),
    (
        "catalog",
        "shoal.cli.catalog:app",
        "What accelerators, drivers and channels can really do, with a source for every fact.",
    ),
    (
        "check",
        "shoal.cli.check:check",
        "Check files with pools and queues, or compare what Shoal has in mind with the cluster.",
    ),
    (
        "compare",
        "shoal.cli.compare:compare",
        "Compare two outputs of simulate, seed by seed.",
    ),
    (
        "completion",
        "shoal.cli.completion:completion",
        "Print what a shell needs to complete commands.",
    ),
    (
        "decisions",
        "shoal.cli.decisions:decisions",
        "Show what was decided, and what is decided now.",
    ),
    (
        "get",
        "shoal.cli.get:app",
        "List workloads, queues, pools, nodes, devices or pods.",
    ),
    (
        "queue",
        "shoal.cli.queue:queue",
        "Show the tree of queues: guaranteed, used, borrowed, waiting.",
    ),
    (
        "release",
        "shoal.cli.release:release",
        "Stop acting; for a cluster: give it back, every gate lifted.",
    ),
    (
        "resume",
        "shoal.cli.resume:resume",
        "Have Shoal decide again after a release, and evict again where that is frozen.",
    ),
    (
        "scheduler",
        "shoal.cli.scheduler:scheduler",
        "The process that decides for a cluster.",
    ),
    (
        "simulate",
        "shoal.cli.simulate:simulate",
        "Fill a fleet with a trace's pods under several policies, and compare them.",
    ),
    (
        "submit",
        "shoal.cli.submit:submit",
        "Submit manifests as they are, or one workload in a line.",
    ),
    (
        "top",
        "shoal.cli.top:top",
        "Show how many devices there are, and who holds them.",
    ),
    (
        "up",
        "shoal.cli.up:up",
        "Run a living platform on a simulated fleet.",
    ),
    (
        "webhook",
        "shoal.cli.webhook:webhook",
        "The process that API servers ask about new pods.",
    ),
    (
        "why",
        "shoal.cli.why:why",
        "Say why something waits, where it is, or where it would start now.",
    ),
)
"""Name, where it is found, and what it is for; a command is imported when it is called."""


def app_named(name: str) -> App:
    """Return the application as it calls itself in its help; its commands are not loaded yet."""
    app = App(
        name=name,
        help=HELP,
        help_format="plaintext",
        version=_version,
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    for command, place, purpose in COMMANDS:
        app.command(place, name=command, help=purpose)
    return app


def _version() -> str:
    """The version of the package; what reads it is slow to import."""
    from importlib.metadata import version

    return version("shoal")


def main(tokens: Sequence[str] | None = None) -> NoReturn:
    """Run one command line, from `tokens` or the process's own, and exit with its status."""
    name = "kubectl shoal" if Path(sys.argv[0]).name.startswith("kubectl") else "shoal"
    status = run(name, sys.argv[1:] if tokens is None else tokens)
    sys.exit(status)


def run(name: str, tokens: Sequence[str]) -> int:
    """Run one command line and return its exit status."""
    app = app_named(name)
    try:
        app(list(tokens))
        sys.stdout.flush()
    except UnknownCommandError as error:
        names = sorted(each for each in error.app or app if not each.startswith("-"))
        found = " ".join(error.unused_tokens or tokens[:1])
        complain(f'there is no command "{found}"; write one of: {", ".join(names)}.')
        return ASKED_WRONGLY
    except UnusedCliTokensError as error:
        complain(f'did not expect "{" ".join(error.unused_tokens or ())}"; see --help.')
        return ASKED_WRONGLY
    except (CycloptsError, UsageError) as error:
        complain(str(error))
        return ASKED_WRONGLY
    except CannotError as error:
        complain(str(error))
        return NO_PLATFORM if isinstance(error, NoPlatformError) else FAILED
    except KeyboardInterrupt:
        complain("interrupted.")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has enough of it; what Python still holds must not be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return DONE


def complain(sentence: str) -> None:
    """Write one sentence to standard error, on one line."""
    print(f"shoal: {' '.join(sentence.split())}", file=sys.stderr)
