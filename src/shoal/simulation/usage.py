"""How much running work uses, so that it looks like real work; a function of the time alone.

Training is busy, dips while data is late, and falls to almost nothing while it saves a checkpoint.
Inference follows the day and comes in bursts. A notebook is idle most of the time. Batch is busy
from its start to its end. Nothing of this is state: the same time gives the same use.
"""

from shoal.core.world import State, World
from shoal.loop.doors import Use
from shoal.loop.story import Life, Story
from shoal.model.request import DeviceRequest
from shoal.model.workload import Placement, Workload, WorkloadType
from shoal.simulation.chance import Chance
from shoal.simulation.progress import SAVE_EVERY_US, SAVING_US, saves

LOADING_S = 90
"""After its start work loads code, weights and data, and its memory fills."""

SITTING_S = 600
"""A person at a notebook looks at it for about so long, or not at all."""

_DAY_S = 86_400
_CONTEXT_MIB = 450
"""What a process takes of a device before it has done anything."""


def uses(chance: Chance, world: World, story: Story, now_us: int) -> list[Use]:
    """Return what every running pod uses at a time, in the order in which workloads came."""
    found = []
    for uid, entry in world.entries.items():
        life = story.lives.get(uid)
        if life is None or life.running_us is None or entry.state is not State.RUNNING:
            continue
        for pod, placement in sorted(entry.held.items()):
            asked = entry.request_of(pod).devices
            if placement.leaves and pod not in entry.joining:
                room = _room(world, placement, asked)
                found.append(_use(chance, life, placement, room, now_us))
    return found


def _room(world: World, placement: Placement, asked: DeviceRequest) -> tuple[float, int]:
    """Return the part of each leaf's compute that a pod may use, and its memory on all of them."""
    fleet = world.fleet
    row = fleet.row_of[placement.node]
    columns = [fleet.leaves[row].index(leaf) for leaf in placement.leaves]
    memory_mib = sum(int(fleet.leaf_memory[row, column]) for column in columns)
    if asked.whole:
        return 1.0, memory_mib
    compute_milli = int(fleet.leaf_compute[row, columns[0]])
    some = 0 < asked.compute_milli < compute_milli
    part = asked.compute_milli / compute_milli if some else 1.0
    return part, asked.memory_mib * asked.count or memory_mib


def _use(
    chance: Chance, life: Life, placement: Placement, room: tuple[float, int], now_us: int
) -> Use:
    workload = life.workload
    part, room_mib = room
    running_s = max(0.0, (now_us - (life.running_us or now_us)) / 1e6)
    name = f"{workload.uid}\0{placement.pod}"
    busy = _BUSY[workload.type](chance, name, now_us / 1e6)
    if _is_saving(chance, workload, running_s):
        busy = 0.02 + 0.03 * chance.wave("saving", name, now_us / 1e6, 5)
    if running_s < LOADING_S and workload.type is not WorkloadType.NOTEBOOK:
        busy *= 0.1
    filled = chance.between(0.55, 0.95, "memory", workload.uid) * min(1.0, running_s / LOADING_S)
    memory_mib = min(room_mib, _CONTEXT_MIB * len(placement.leaves) + int(filled * room_mib))
    return Use(
        workload.uid,
        placement.pod,
        placement.node,
        placement.leaves,
        round(100 * part * min(1.0, max(0.0, busy)), 1),
        memory_mib,
    )


def _is_saving(chance: Chance, workload: Workload, running_s: float) -> bool:
    every_s, saving_s = SAVE_EVERY_US / 1e6, SAVING_US / 1e6
    is_time = running_s > every_s and running_s % every_s < saving_s
    return is_time and saves(chance, workload)


def _training(chance: Chance, name: str, now_s: float) -> float:
    level = chance.between(0.78, 0.98, "level", name)
    jitter = 0.10 * (chance.wave("jitter", name, now_s, 7) - 0.5)
    starved = 0.5 if chance.wave("data", name, now_s, 120) > 0.93 else 0.0
    return level + jitter - starved


def _inference(chance: Chance, name: str, now_s: float) -> float:
    hour = now_s % _DAY_S / 3600
    day = max(0.0, 1 - abs(hour - 14) / 9)
    level = chance.between(0.08, 0.35, "level", name) * (0.3 + day)
    burst = max(0.0, chance.wave("burst", name, now_s, 40) - 0.75) * 2.2
    return level + burst * (0.3 + day) + 0.05 * chance.wave("jitter", name, now_s, 3)


def _notebook(chance: Chance, name: str, now_s: float) -> float:
    sitting = f"{name}\0{int(now_s // SITTING_S)}"
    if chance.unit("sitting", sitting) > 0.3:
        return 0.0
    return max(0.0, chance.wave("cell", name, now_s, 25) - 0.45) * 1.6


def _batch(chance: Chance, name: str, now_s: float) -> float:
    level = chance.between(0.55, 0.95, "level", name)
    return level + 0.2 * (chance.wave("jitter", name, now_s, 11) - 0.5)


_BUSY = {
    WorkloadType.TRAINING: _training,
    WorkloadType.INFERENCE: _inference,
    WorkloadType.NOTEBOOK: _notebook,
    WorkloadType.BATCH: _batch,
}
