"""Files that follow one another while work comes and ends: quotas hold, and what is said comes."""

from dataclasses import dataclass

from hypothesis import event, given, settings
from hypothesis import strategies as st

from shoal.core import events as ev
from shoal.core.budget import Budget
from shoal.core.cycle import cycle
from shoal.core.tenancy.inside import inside_of
from shoal.core.validate import Validator, check
from shoal.core.world import World
from shoal.loop.meanings import change
from shoal.model.meaning import QuotaDebt
from shoal.model.queue import Queue, QueueTree
from shoal.model.workload import Outcome, PodSet, Workload, WorkloadType
from shoal.objects.files import Written
from shoal.objects.meaning import without_closed
from shoal.objects.quotas import names_of
from shoal.objects.tree import resolved
from tests.core.build import node, policy, whole
from tests.objects.written import CATALOG

NAMES = names_of(CATALOG)
SXM = "H100-SXM5-80GB"
QUEUES = ("top", "mid", "lab", "desk")


@dataclass(frozen=True)
class Come:
    """Work of a queue comes, on so many devices."""

    queue: str
    devices: int
    type: WorkloadType


@dataclass(frozen=True)
class End:
    """The work that came so many places ago ends."""

    back: int


@st.composite
def files(draw: st.DrawFn) -> QueueTree:
    """Some of four queues below one another in some order; what they are granted may be little."""
    names = draw(st.permutations(QUEUES))[: draw(st.integers(1, len(QUEUES)))]
    queues: list[Queue] = []
    for number, name in enumerate(names):
        parent = draw(st.sampled_from(names[:number])) if number else ""
        limit = draw(st.sampled_from((None, 2, 4, 6)))
        queues.append(
            Queue(
                name,
                parent,
                guarantee=draw(st.sampled_from((None, ((SXM, 0),)))) if number else ((SXM, 4),),
                limit=() if limit is None else ((SXM, limit),),
            )
        )
    return QueueTree(tuple(queues))


COME = st.builds(
    Come,
    st.sampled_from(QUEUES),
    st.integers(1, 4),
    st.sampled_from((WorkloadType.TRAINING, WorkloadType.NOTEBOOK)),
)
STEPS = st.one_of(COME, COME, COME, files(), st.builds(End, st.integers(0, 5)))


class Platform:
    """A world of eight devices that files and work come to, every event validated."""

    def __init__(self) -> None:
        self.world = World()
        self.written = Written()
        self.validator = Validator(self.world)
        self.time = 0
        self.came: list[str] = []
        self.feed(ev.NodeSeen(0, node("n", 8, accelerator=SXM)))

    def feed(self, *events: ev.Event) -> None:
        """Take in what happened."""
        for each in events:
            self.world.apply(each)
            self.validator.applied(each)

    def decide(self) -> None:
        """Let a cycle decide, and start all pods of who was started."""
        self.time += 1
        came = cycle(self.world, policy(), self.time, 7, Budget(1000))
        self.feed(*(ev.Decided(self.time, each) for each in came.decisions))
        self.feed(ev.Cycled(self.time, 1000, came.complete, came.examined))
        for uid, entry in self.world.entries.items():
            self.feed(*(ev.PodStarted(self.time, uid, pod) for pod in entry.held))

    def keep_to(self, tree: QueueTree) -> None:
        """Keep to other queues, and see that the debts come which were said."""
        before = self.world.tenants.owed()
        new = change(self.world, self.written, Written((), tree), NAMES, self.time)
        self.written = new.written
        self.feed(ev.QueuesSet(self.time, resolved(new.written.tree, NAMES)))
        self.world.tenants.bring_up_to_date()
        now = self.world.tenants.owed()
        grown = {
            (each.queue, each.over_units)
            for key, each in now.items()
            if key not in before or each.over_units > before[key].over_units
        }
        said = [each for each in new.meanings if isinstance(each, QuotaDebt)]
        assert {(each.queue, each.over_units) for each in said} == grown
        event("debts" if said else "no debts")

    def let_closed_go(self) -> None:
        """Forget queues that were closing and hold nothing any more."""
        left = without_closed(self.written.tree, self.world.holders)
        if left is not self.written.tree:
            event("a queue has closed")
            self.written = Written((), left)
            self.feed(ev.QueuesSet(self.time, resolved(left, NAMES)))


@given(files(), st.lists(STEPS, min_size=15, max_size=30))
@settings(max_examples=80, deadline=None)
def test_whatever_files_follow_one_another_quotas_hold_and_all_work_counts(
    first: QueueTree, steps: list[QueueTree | Come | End]
) -> None:
    at = Platform()
    at.keep_to(first)
    for number, step in enumerate(steps):
        if isinstance(step, QueueTree):
            at.keep_to(step)
        elif isinstance(step, Come):
            uid = f"w{number}"
            pods = (PodSet("main", 1, whole(step.devices)),)
            work = Workload(uid, pods, step.queue, step.type, 0, at.time, recreated=True)
            at.came.append(uid)
            at.feed(ev.WorkloadSubmitted(at.time, work))
        elif step.back < len(at.came):
            uid = at.came.pop(-1 - step.back)
            at.feed(ev.WorkloadEnded(at.time, uid, Outcome.COMPLETED))
        at.let_closed_go()
        at.decide()
        check(at.world)
        tree = at.world.tenants.tree
        running = {name: here for name, here in inside_of(at.world).items() if here.running}
        assert running.keys() <= {each.name for each in tree.queues}, "some work counts nowhere"
        root = tree.queues[0].name
        held = sum(units for here in running.values() for units in here.units.values())
        assert sum(at.world.tenants.used_units(root).values()) == held
        event("closes" if any(each.closing for each in tree.queues) else "none closes")
