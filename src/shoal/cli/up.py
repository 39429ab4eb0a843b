"""`shoal up`: a living platform in one process, on a simulated fleet."""

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Self

from cyclopts import Parameter

from shoal.cli.errors import CannotError, UsageError
from shoal.cli.numbers import whole_number
from shoal.cli.state import state_folder
from shoal.cli.stopping import quiet_terminal, stopped_by_signals

if TYPE_CHECKING:
    from shoal.catalog.catalog import Catalog
    from shoal.core.events import Event
    from shoal.loop.doors import Doors
    from shoal.loop.replica import Replica
    from shoal.model.node import Node
    from shoal.objects.files import Written
    from shoal.simulation.platform import BegunWith, Clock, Platform
    from shoal.simulation.tally import Tally

HIGHEST = "max"
DEFAULT_SEED = 1
DEFAULT_POLICY = "fragmentation"

FOLLOW_S = 0.05
"""The replica reads on so often."""

DRAW_S = 0.25
"""The screen is drawn so often."""

LOOK_S = 0.05
"""Without a screen or a server, somebody looks so often whether it is over."""

CHUNK_US = 60_000_000
"""At the highest speed, time between two looks at what people ask."""

_SPEED = re.compile(r"([0-9]+(?:\.[0-9]+)?)x?")
_LENGTH = re.compile(r"([0-9]+)(m|h|d)")
_UNIT_US = {"m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}


@Parameter(name="*")
@dataclass(frozen=True)
class Objects:
    """What people wrote for a platform."""

    queues: Annotated[tuple[Path, ...], Parameter(name="--queues", negative="")] = ()
    """Files or folders with pools and queues; otherwise those that were applied last, or the
    demo's."""
    catalog: Annotated[tuple[Path, ...], Parameter(name="--catalog", negative="")] = ()
    """Files or folders of your own that extend the catalogue, such as prices."""


NO_OBJECTS = Objects()


def up(
    *,
    fleet: Annotated[Path | None, Parameter(name="--fleet")] = None,
    demo: Annotated[bool, Parameter(name="--demo", negative="")] = False,
    objects: Objects = NO_OBJECTS,
    speed: Annotated[str | None, Parameter(name="--speed")] = None,
    length: Annotated[str | None, Parameter(name="--for")] = None,
    state: Annotated[Path | None, Parameter(name="--state")] = None,
    seed: Annotated[int | None, Parameter(name="--seed", converter=whole_number)] = None,
    no_screen: Annotated[bool, Parameter(name="--no-screen", negative="")] = False,
) -> None:
    """Run a living platform: a simulated fleet, its work, and every decision about it.

    It answers the other commands on a socket of yours, and goes on where it was stopped. Without a
    terminal, and without --no-screen, it runs one simulated day at the highest speed and says what
    that came to.

    Parameters
    ----------
    fleet
        Nodes, as simulate reads them; otherwise 24 nodes of three accelerators.
    demo
        Let an organisation with six teams send its work through the day.
    speed
        How fast time passes: 1x, 60x, or max. It is 1x unless given.
    length
        Stop after so much of the platform's time, such as 90m, 24h or 7d.
    state
        Folder of the platform's state; otherwise SHOAL_STATE, or the one of this user.
    seed
        Everything that happens by chance comes from it.
    no_screen
        Draw nothing and run until stopped, for scripts.
    """
    by_itself = not no_screen and not sys.stdout.isatty()
    factor = _speed(speed or (HIGHEST if by_itself else "1x"))
    length_us = _length("24h" if by_itself and length is None else length)
    with ExitStack() as stack:
        if by_itself and state is None and "SHOAL_STATE" not in os.environ:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-")))
        else:
            folder = state_folder(state)
        what = _begun_with(folder, fleet, seed, demo=demo)
        if by_itself:
            read = _written(folder, what, objects)
            _run_by_itself(folder, what, read, factor, length_us)
        else:
            live = _Live(folder, what, factor, length_us, screen=not no_screen)
            live.run(_written(folder, what, objects), speed or "1x")


def _speed(text: str) -> float | None:
    """Return how fast time passes, None for as fast as it can. Raises UsageError."""
    match = _SPEED.fullmatch(text)
    if text == HIGHEST:
        return None
    if not match or not 0 < float(match[1]) <= 100_000:
        raise UsageError(f'--speed expects 1x, 60x or such, or max, found "{text}".')
    return float(match[1])


def _length(text: str | None) -> int | None:
    if text is None:
        return None
    match = _LENGTH.fullmatch(text)
    if not match or not 0 < int(match[1]) <= 10_000:
        raise UsageError(f'--for expects a length of time such as 90m, 24h or 7d, found "{text}".')
    return int(match[1]) * _UNIT_US[match[2]]


def _begun_with(folder: Path, fleet: Path | None, seed: int | None, *, demo: bool) -> "BegunWith":
    """Return what a platform is begun with, or was, if nothing that was said contradicts it."""
    from shoal.simulation import organisation
    from shoal.simulation.platform import BegunWith, begun_with

    nodes = _nodes(fleet) if fleet is not None else None
    with _said(folder):
        known = begun_with(folder)
    if known is None:
        chosen = DEFAULT_SEED if seed is None else seed
        return BegunWith(chosen, DEFAULT_POLICY, demo, nodes or organisation.fleet())
    for option, given, was in (
        ("--fleet", nodes, known.nodes),
        ("--seed", seed, known.seed),
        ("--demo", demo or None, known.demo),
    ):
        if given is not None and given != was:
            raise UsageError(
                f"{folder} holds a platform that was begun otherwise: leave {option} out to go on"
                " with it, or name another folder with --state."
            )
    return known


def _nodes(file: Path) -> "tuple[Node, ...]":
    from shoal.simulation.readers import read_nodes
    from shoal.simulation.source import BadInputError

    try:
        return read_nodes(file)
    except BadInputError as error:
        raise UsageError(str(error)) from None


@contextmanager
def _said(folder: Path) -> Iterator[None]:
    """Say why what is in a folder cannot be gone on with."""
    from shoal.loop.disk import LockedError
    from shoal.loop.records import RecordingError

    try:
        yield
    except LockedError:
        raise CannotError(
            f"another shoal up runs on {folder}; stop it, or name another folder with --state."
        ) from None
    except RecordingError as error:
        raise CannotError(f"{error} Name another folder with --state to begin anew.") from None
    except OSError as error:
        raise CannotError(f"--state {folder}: {error.strerror or error}.") from None


@contextmanager
def _opened(folder: Path, what: "BegunWith", tally: "Tally | None" = None) -> "Iterator[Platform]":
    """Open a platform, and leave everything safe behind. Raises CannotError."""
    from shoal.loop.records import RecordingError
    from shoal.simulation.platform import Platform

    def count(event: "Event") -> None:
        if tally is not None:
            tally.applied(event)

    with _said(folder):
        platform = Platform(folder, what, check=count if tally is not None else None)
    try:
        with closing(platform):
            yield platform
    except BrokenPipeError:
        raise
    except RecordingError as error:
        raise CannotError(f"{error} Somebody else changed what is there.") from None
    except OSError as error:
        raise CannotError(f"{folder} cannot be written: {error.strerror or error}.") from None


def _run_by_itself(
    folder: Path,
    what: "BegunWith",
    read: "_Read",
    factor: float | None,
    length_us: int | None,
) -> None:
    """Let time pass and print what it came to."""
    from shoal.cli.summary import summary
    from shoal.simulation.platform import Clock
    from shoal.simulation.tally import Tally

    tally = Tally()
    with _opened(folder, what, tally) as platform:
        tally.platform = platform
        _keep_to(platform, read)
        begin_us = platform.now_us
        end_us = begin_us + (length_us or 0)
        crew = _Crew(platform)
        with stopped_by_signals() as stopped, crew:
            clock = Clock(begin_us, factor) if factor else None
            crew.start("shoal-writer", lambda: _let_pass(platform, clock, crew.stop, end_us))
            while not crew.stop.is_set() and not stopped.within(LOOK_S):
                pass
        print(summary(tally, platform.world, what, begin_us, platform.now_us))


class _Crew:
    """Threads that stop together: when the crew is left, or one of them comes to its end.

    Whoever leaves the crew waits for all of them, and is told what one of them failed of.
    """

    def __init__(self, platform: "Platform") -> None:
        self.stop = Flag()
        self._platform = platform
        self._threads: list[Thread] = []
        self._failure: BaseException | None = None

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Begin to do something that ends soon after `stop` is set."""

        def do() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - told by the thread that people see
                self._failure = error
            finally:
                self._end()

        self._threads.append(Thread(target=do, name=name))
        self._threads[-1].start()

    def _end(self) -> None:
        self.stop.set()
        self._platform.inbox.ring()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        for thread in self._threads:
            thread.join()
        if self._failure is not None:
            raise self._failure


def _let_pass(platform: "Platform", clock: "Clock | None", stop: Flag, end_us: int | None) -> None:
    """Let time pass as a clock says, or as fast as it can, until `end_us` or until stopped."""
    try:
        if clock is not None:
            platform.live(clock, stop, end_us)
            return
        while not stop.is_set() and (end_us is None or platform.now_us < end_us):
            next_us = platform.now_us + CHUNK_US
            platform.run_until(min(next_us, end_us or next_us), stop)
    finally:
        platform.inbox.close()  # so that nobody waits for an answer that nobody gives any more


class _Live:
    """A platform that people watch and ask: a thread that writes, one that follows, a server."""

    def __init__(
        self,
        folder: Path,
        what: "BegunWith",
        factor: float | None,
        length_us: int | None,
        *,
        screen: bool,
    ) -> None:
        self._folder = folder
        self._what = what
        self._factor = factor
        self._length_us = length_us
        self._screen = screen

    def run(self, read: "_Read", speed: str) -> None:
        """Run until somebody stops it."""
        from importlib.metadata import version

        from shoal.server.address import AddressError, default_path
        from shoal.server.serving import serving
        from shoal.server.standing import Standing
        from shoal.simulation.platform import Clock

        with _opened(self._folder, self._what) as platform:
            written = _keep_to(platform, read)
            end_us = None if self._length_us is None else platform.now_us + self._length_us
            clock = Clock(platform.now_us, self._factor) if self._factor else None
            doors = self._doors(platform, clock)
            standing = Standing(
                doors, read.catalog, written, version("shoal"), platform.keep_objects
            )
            crew = _Crew(platform)
            try:
                with (
                    stopped_by_signals() as stopped,
                    crew,
                    serving(standing, default_path()) as socket,
                ):
                    crew.start(
                        "shoal-writer", lambda: _let_pass(platform, clock, crew.stop, end_us)
                    )
                    crew.start("shoal-follower", lambda: _follow(doors.replica, crew.stop))

                    def goes_on() -> bool:
                        return not (stopped.within(DRAW_S) or crew.stop.is_set())

                    self._show(doors, socket, speed, goes_on)
            except AddressError as error:
                raise CannotError(str(error)) from None
        print(f"shoal: stopped; shoal up --state {self._folder} goes on.", file=sys.stderr)

    def _doors(self, platform: "Platform", clock: "Clock | None") -> "Doors":
        from shoal.loop.doors import Doors, Use
        from shoal.loop.replica import Replica
        from shoal.simulation.platform import RECORDING
        from shoal.simulation.usage import uses

        replica = Replica(self._folder / RECORDING)
        while replica.catch_up():
            pass

        def now_us() -> int:
            return max(platform.now_us, clock.now_us() if clock else 0)

        def used() -> list[Use]:
            with replica.lock:
                return uses(platform.embedded.chance, replica.world, replica.story, now_us())

        return Doors(replica, platform.inbox, now_us, platform.metrics, used)

    def _show(self, doors: "Doors", socket: Path, speed: str, goes_on: Callable[[], bool]) -> None:
        """Draw the screen, or say where the platform is to be found, while it goes on."""
        if not self._screen:
            print(f"shoal: serving on {socket}; state in {self._folder}", file=sys.stderr)
            while goes_on():
                pass
            return
        from rich.console import Console
        from rich.live import Live

        from shoal.cli.screen import Place, frame, view_of
        from shoal.cli.where import environment_language

        place = Place(_short(self._folder), speed, environment_language())
        number = sys.stdout.fileno()
        # Where Python does not buffer its output, a signal loses what it cuts off of a frame.
        with (
            quiet_terminal(number),
            open(number, "w", encoding=sys.stdout.encoding, closefd=False) as terminal,
        ):
            console = Console(file=terminal)
            with Live(console=console, screen=True, auto_refresh=False) as live:
                while goes_on():
                    drawn = frame(view_of(doors), place, console.width, console.height)
                    live.update(drawn, refresh=True)


def _follow(replica: "Replica", stop: Flag) -> None:
    """Keep a replica up to date, and look for garbage, until stopped."""
    from shoal.loop.garbage import tended

    with tended() as garbage:
        while not stop.wait(FOLLOW_S):
            while replica.catch_up() and not stop.is_set():
                pass
            garbage.look()


def _short(path: Path) -> str:
    """Return a path as people write it who are at home."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


@dataclass(frozen=True)
class _Read:
    """The catalogue, and the texts that people wrote; `is_new` where they name them now."""

    catalog: "Catalog"
    texts: list[tuple[str, bytes]]
    is_new: bool


def _written(folder: Path, what: "BegunWith", given: Objects) -> _Read:
    """Return the catalogue and what people wrote: now, while it last ran, or for the demo.

    What is wrong with it on every day is said before anything is begun.
    """
    from importlib.resources import as_file, files

    from shoal.catalog.load import CatalogError, load_catalog
    from shoal.cli.apply import failed
    from shoal.objects.files import BadObjectsError, object_texts, read_object_texts
    from shoal.objects.pools import node_problems
    from shoal.simulation.platform import kept_objects

    try:
        catalog = load_catalog(given.catalog)
    except CatalogError as error:
        raise UsageError(str(error)) from None
    texts: list[tuple[str, bytes]] = []
    if not given.queues:
        with _said(folder):
            texts = kept_objects(folder)
    try:
        if not texts:
            with as_file(files("shoal.simulation") / "demo.yaml") as demo:
                texts = object_texts(given.queues or ([demo] if what.demo else []))
        written = read_object_texts(texts, catalog)
    except BadObjectsError as error:
        raise failed(error.problems) from None
    problems = node_problems(written.pools, {node.name: node.labels for node in what.nodes})
    if problems:
        raise failed(problems)
    return _Read(catalog, texts, is_new=bool(given.queues))


def _keep_to(platform: "Platform", read: _Read) -> "Written":
    """Have a platform keep to these pools and queues, and to queues that close until empty.

    Exchange rates and prices are those of the platform's day.
    """
    from shoal.cli.apply import failed
    from shoal.core.tenancy.inside import inside_of
    from shoal.objects.files import BadObjectsError, Written, read_object_texts
    from shoal.objects.meaning import closing_kept
    from shoal.objects.quotas import names_of
    from shoal.objects.tree import resolved
    from shoal.server.standing import moment

    try:
        day = moment(platform.now_us).date()
        written = read_object_texts(read.texts, read.catalog, day)
    except BadObjectsError as error:
        raise failed(error.problems) from None
    if read.is_new:
        platform.forget_objects()
    world, names = platform.world, names_of(read.catalog)
    tree = closing_kept(world.tenants.tree, written.tree, inside_of(world), names)
    platform.keep_to(written.pools, resolved(tree, names))
    return Written(written.pools, tree)
