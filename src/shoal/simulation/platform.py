"""A platform in one process: a state folder, the loop, and the embedded fleet.

The recording in the state folder is the truth: what is decided is safe there before it is carried
out, and a platform that begins finds there how far it came. Beside it lies what the platform was
begun with, and the pools and queues that people had taken in while it ran. Nothing else is kept.

Time passes in ticks. All that is due up to a tick happens, each at its own time, and then the loop
decides; so what comes of a seed does not depend on how fast time passes, or on who stopped it. What
people ask is answered between ticks, at once.
"""

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag
from time import monotonic

import msgspec

from shoal.core import events as ev
from shoal.core.decisions import Decision
from shoal.core.policies import Policy
from shoal.core.world import World
from shoal.loop.disk import Disk
from shoal.loop.engine import Loop
from shoal.loop.inbox import Inbox, KeepTo
from shoal.loop.recording import DEFAULT_ROTATION, FolderRecorder, Rotation, segments_in
from shoal.loop.records import Header, RecordingError
from shoal.loop.replica import restored
from shoal.loop.writer import Writer
from shoal.model.node import Node
from shoal.model.pool import Pool
from shoal.model.queue import QueueTree
from shoal.objects.meaning import without_closed
from shoal.simulation.embedded import Embedded
from shoal.simulation.organisation import FIRST_MORNING_US, Organisation

TICK_US = 500_000
"""Time between two looks at what is due."""

BEHIND_S = 2.0
"""A clock that is so far ahead of the work is set back: time passes more slowly than asked."""

IDLE_S = 0.5
"""The longest time that a platform sleeps."""

RECORDING = "recording"
_BEGUN_WITH = "platform.json"
"""What it was begun with on one line, and the CRC-32 of that on the next."""

_OBJECTS = "objects.json"
"""The pools and queues that people had taken in while it ran, in the form of the former."""


@dataclass(frozen=True, slots=True)
class BegunWith:
    """What a platform was begun with."""

    seed: int
    policy: str
    demo: bool
    nodes: tuple[Node, ...]


class DifferentError(Exception):
    """The state folder holds a platform that was begun with something else."""


def begun_with(folder: Path) -> BegunWith | None:
    """Return what the platform in a state folder was begun with, None where there is none.

    Raises `RecordingError` where that is damaged or gone, and `OSError` where it cannot be read.
    """
    file = folder / _BEGUN_WITH
    written = _checked(file)
    if written is None:
        if segments_in(folder / RECORDING):
            raise RecordingError(f"{file} is gone, and the recording beside it is not.")
        return None
    return msgspec.json.decode(written, type=BegunWith)


def kept_objects(folder: Path) -> list[tuple[str, bytes]]:
    """Return the files that were taken in last in a state folder, each with its name and text.

    They are empty where there are none. Raises `RecordingError` where they are damaged, and
    `OSError` where they cannot be read.
    """
    written = _checked(folder / _OBJECTS)
    texts = [] if written is None else msgspec.json.decode(written, type=list[tuple[str, str]])
    return [(name, text.encode()) for name, text in texts]


def _checked(file: Path) -> bytes | None:
    """What a file says on its first line, of which the second is the checksum; None: no file."""
    try:
        written, _, check = file.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    if check != _check(written):
        raise RecordingError(f"{file} is damaged: its checksum is wrong.")
    return written


def _check(written: bytes) -> bytes:
    return b"%08x\n" % zlib.crc32(written)


class Platform:
    """Begins, or goes on where the state folder says it stopped.

    Raises `LockedError` where another process runs it, `RecordingError` where what it left is
    damaged, and `DifferentError` where it was begun with something else.
    """

    def __init__(
        self,
        folder: Path,
        what: BegunWith,
        *,
        disk: Disk | None = None,
        rotation: Rotation = DEFAULT_ROTATION,
        check: Callable[[ev.Event], None] | None = None,
    ) -> None:
        disk = disk or Disk()
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._disk = disk
        self._note(what)
        recording = folder / RECORDING
        since = restored(recording) if segments_in(recording) else None
        header = Header(str(what.seed), Policy(what.policy))
        recorder = FolderRecorder(recording, header, since=since, disk=disk, rotation=rotation)
        self._recorder = recorder
        self.inbox = Inbox()
        self.world = since.world if since else World()
        self.story = recorder.story
        self.now_us = since.at_us if since and since.offset else FIRST_MORNING_US
        """Up to when everything has happened."""
        organisation = Organisation(what.seed, FIRST_MORNING_US) if what.demo else None
        self.embedded = Embedded(
            what.seed, what.nodes, FIRST_MORNING_US, self.world, self.story, organisation
        )
        loop = Loop(self.world, header.policy, what.seed, self.embedded, recorder, check)
        self._writer = Writer(loop, recorder, self.inbox, self.embedded)
        self.metrics = self._writer.metrics
        if recorder.offset:
            self.embedded.resume(self.now_us)
        else:
            self._step(self.now_us, self.embedded.begin(self.now_us))

    def keep_to(self, pools: tuple[Pool, ...], queues: QueueTree) -> None:
        """Have the loop keep to these pools and queues from now on, before anybody else asks."""
        if (pools, queues) != (self.world.fleet.pools, self.world.tenants.tree):
            self.inbox.put(KeepTo(pools, queues))
            self._step(self.now_us, ())

    def keep_objects(self, texts: Sequence[tuple[str, str]]) -> None:
        """Make the files safe that people had taken in while it runs, each with its name.

        They stay apart: what each may hold, and how large it may be, is said of one file.
        """
        self._write(_OBJECTS, msgspec.json.encode(texts))

    def forget_objects(self) -> None:
        """Forget those that people had taken in, because others are named now."""
        self._disk.remove(self.folder / _OBJECTS)

    def _note(self, what: BegunWith) -> None:
        known = begun_with(self.folder)
        if known is None:
            self._write(_BEGUN_WITH, msgspec.json.encode(what))
        elif known != what:
            raise DifferentError

    def _let_closed_go(self) -> None:
        """Forget queues that were closing and hold nothing any more."""
        tree = self.world.tenants.tree
        left = without_closed(tree, self.world.holders)
        if left is not tree:
            self._writer.step(self.now_us, [ev.QueuesSet(self.now_us, left)])

    # Time -------------------------------------------------------------------------------------

    def _write(self, name: str, line: bytes) -> None:
        """Have a file with a line and its checksum be there whole, in the place of the former."""
        part = self.folder / f"{name}.part"
        file = self._disk.create(part)
        self._disk.append(file, line + b"\n" + _check(line))
        self._disk.sync(file)
        file.close()
        self._disk.publish(part, name)

    def run_until(self, end_us: int, stop: Flag | None = None) -> None:
        """Let time pass to `end_us` as fast as it can, or until somebody sets `stop`."""
        stop = stop or Flag()
        while not stop.is_set() and self._tick(end_us):
            pass
        if not stop.is_set():
            self._step(end_us, self.embedded.due(end_us))

    def live(self, clock: "Clock", stop: Flag, end_us: int | None = None) -> None:
        """Let time pass as a clock says, until `end_us`, or until somebody stops it.

        To stop it, set `stop` and ring at the inbox.
        """
        while not stop.is_set():
            now_us = clock.now_us() if end_us is None else min(end_us, clock.now_us())
            if self._tick(now_us):
                clock.wait_for(self.now_us)
            elif len(self.inbox) or now_us == end_us:
                now_us = max(self.now_us, now_us)
                self._step(now_us, self.embedded.due(now_us))
                if now_us == end_us:
                    return
            else:
                self.inbox.wait(self._pause_s(clock))

    def close(self) -> None:
        """Answer nobody any more, and leave everything safe."""
        self.inbox.close()
        self._recorder.close()

    def _pause_s(self, clock: "Clock") -> float:
        next_us = self.embedded.next_due_us()
        return IDLE_S if next_us is None else clock.until_s(_tick_of(next_us))

    def _tick(self, clock_us: int) -> bool:
        """Take the next step that is due; False where none is due up to `clock_us`."""
        next_us = self.embedded.next_due_us()
        if next_us is None or _tick_of(next_us) > clock_us:
            return False
        tick_us = max(_tick_of(next_us), self.now_us)
        self._step(tick_us, self.embedded.due(tick_us))
        return True

    def _step(self, now_us: int, events: Iterable[ev.Event]) -> list[Decision]:
        decisions = self._writer.step(now_us, events)
        self.now_us = now_us
        self._let_closed_go()
        return decisions


class Clock:
    """A clock that runs `speed` times as fast as the one outside, from `begin_us` on.

    Where the work cannot follow, it waits for it.
    """

    def __init__(self, begin_us: int, speed: float) -> None:
        self._speed = speed
        self._from = (begin_us, monotonic())

    def now_us(self) -> int:
        """Return the time."""
        from_us, from_s = self._from
        return from_us + int((monotonic() - from_s) * self._speed * 1e6)

    def wait_for(self, reached_us: int) -> None:
        """Set the clock back to what was reached, if it is too far ahead of it."""
        if self.now_us() - reached_us > BEHIND_S * self._speed * 1e6:
            self._from = (reached_us, monotonic())

    def until_s(self, at_us: int) -> float:
        """Return how long to sleep until a time, at most."""
        return min(IDLE_S, max(0.0, (at_us - self.now_us()) / self._speed / 1e6))


def _tick_of(at_us: int) -> int:
    """Return the first tick at or behind a time."""
    return -(-at_us // TICK_US) * TICK_US
