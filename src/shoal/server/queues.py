"""Queues as the API sends them: what is granted, used, borrowed and waited for.

"Borrowed" is use above what a queue is guaranteed. Shares of devices count by what they are
charged, and what one queue has on one device never counts more than the device.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from fractions import Fraction

from shoal.core.tenancy.shares import fair_shares
from shoal.core.world import State
from shoal.model.fractions import UNIT
from shoal.model.queue import Queue, QueueTree, Quota
from shoal.objects.quotas import Scale, guaranteed
from shoal.server.models import AcceleratorUse, QueueView, QuotaView, words
from shoal.server.standing import Look, devices_of
from shoal.texts.verdicts import HOUR_US

GONE = "unknown"
"""The accelerator of a device whose node is gone."""


class _Use:
    """What the work in each queue uses, with all that is below it."""

    def __init__(self, look: Look) -> None:
        self.tree = tree = look.tree
        self.scale = Scale.of(tree, look.standing.names)
        self.promised = any(guaranteed(tree, root, self.scale) for root in tree.children(""))
        """Whether anybody is guaranteed anything; where nobody is, nobody borrows."""
        on_device: dict[tuple[str, str, str], int] = defaultdict(int)
        self.running: Counter[str] = Counter()
        self.waiting: Counter[str] = Counter()
        self.waiting_devices: Counter[str] = Counter()
        self.kept: dict[str, Counter[str]] = defaultdict(Counter)
        self.named: dict[str, tuple[str, ...]] = {}
        for entry in look.world.entries.values():
            queue = entry.workload.queue
            if queue not in self.named:
                self.named[queue] = tree.path(queue)
            for above in self.named[queue]:
                if entry.state is State.WAITING:
                    self.waiting[above] += 1
                    self.waiting_devices[above] += devices_of(entry.workload)
                    for charges in entry.reserved.charges if entry.reserved else ():
                        for charge in charges:
                            self.kept[above][charge.accelerator] += charge.units
                else:
                    self.running[above] += 1
                    for pod, placement in entry.held.items():
                        for leaf in placement.leaves:
                            place = look.places.get(leaf)
                            device = place.device.name if place else leaf
                            accelerator = place.device.accelerator if place else GONE
                            on_device[above, accelerator, device] += look.units(entry, pod, leaf)
        self.units: dict[str, Counter[str]] = defaultdict(Counter)
        for (queue, accelerator, _), units in on_device.items():
            self.units[queue][accelerator] += min(units, UNIT)
        self.lost_today_us: Counter[str] = Counter()
        """What it lost by preemption within a day."""
        evictions, now_us = look.world.evictions, look.standing.doors.now_us()
        for name in evictions.lost:
            lost_us = evictions.lost_today(name, now_us)
            for above in tree.path(name):
                self.lost_today_us[above] += lost_us


def queue_views(look: Look) -> list[QueueView]:
    """All queues: the tree from the root down, then those that only workloads name."""
    tree = look.tree
    use = _Use(look)
    shares = fair_shares(look.world)
    leaves = {queue.name for queue in tree.leaves()}
    views = [
        _view(use, queue, shares.get(queue.name, {}), leaf=queue.name in leaves)
        for queue in _down(tree, "")
    ]
    unwritten = sorted(name for name in use.named if tree.get(name) is None)
    views += [_view(use, Queue(name), None, leaf=True) for name in unwritten]
    return views


def _down(tree: QueueTree, name: str) -> list[Queue]:
    """The queues below a name, each followed by those below it."""
    below: list[Queue] = []
    for queue in tree.children(name):
        below += [queue, *_down(tree, queue.name)]
    return below


def _view(use: _Use, queue: Queue, fair: Mapping[str, Fraction] | None, *, leaf: bool) -> QueueView:
    """One queue; without a fair share where it is not written."""
    tree, written = use.tree, fair is not None
    units = use.units[queue.name]
    granted = guaranteed(tree, queue, use.scale) if written and use.promised else None
    return QueueView(
        name=queue.name,
        parent=queue.parent or None,
        path=list(tree.path(queue.name)),
        written=written and not queue.closing,
        closing=queue.closing,
        leaf=leaf,
        weight=queue.weight,
        types=words(queue.types) if written else [],
        quotas=_quotas(use.scale, units, use.kept[queue.name], granted, queue.limit),
        used=[
            AcceleratorUse(accelerator=each, devices=_devices(units[each]))
            for each in sorted(units)
            if units[each]
        ],
        fair=[
            AcceleratorUse(accelerator=each, devices=round(float(share), 2))
            for each, share in sorted((fair or {}).items())
            if share
        ],
        running=use.running[queue.name],
        waiting=use.waiting[queue.name],
        waiting_devices=use.waiting_devices[queue.name],
        lost_device_hours_today=round(use.lost_today_us[queue.name] / HOUR_US, 2),
    )


def _quotas(
    scale: Scale, units: Counter[str], kept: Counter[str], promise: Quota | None, most: Quota
) -> list[QuotaView]:
    """What is granted and used, by the words of the grants and then by what no grant covers."""
    guarantee, limit = dict(promise or ()), dict(most)
    grants = sorted({*guarantee, *limit})
    views: list[QuotaView] = []
    covered: set[str] = set()
    for word in grants:
        covered |= scale.behind(word)
        used = scale.counted(units, word)
        promised = guarantee.get(word)
        views.append(
            QuotaView(
                accelerator=word,
                used=_devices(used),
                guarantee=promised,
                limit=limit.get(word),
                borrowed=_devices(max(0, used - (promised or 0) * UNIT)),
                kept=_devices(scale.counted(kept, word)),
            )
        )
    both = units + kept
    for word in sorted(each for each in both if each not in covered):
        used = units[word]
        borrowed = 0 if promise is None else used
        views.append(
            QuotaView(
                accelerator=word,
                used=_devices(used),
                guarantee=None if promise is None else 0,
                limit=None,
                borrowed=_devices(borrowed),
                kept=_devices(kept[word]),
            )
        )
    return views


def _devices(units: int) -> float:
    """Units as devices, to the hundredth."""
    return round(units / UNIT, 2)
