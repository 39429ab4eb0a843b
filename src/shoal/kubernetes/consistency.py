"""Whether a world agrees with the API server, said in sentences.

The comparison reads pods and claims by rules of its own, so that it does not repeat a mistake of
the code that it checks.
"""

from collections import defaultdict
from collections.abc import Iterator

from shoal.core.world import State
from shoal.kubernetes.admission.names import MANAGE, MODE
from shoal.kubernetes.watching.source import Source
from shoal.kubernetes.watching.truth import Truth
from shoal.kubernetes.wire.pod import Pod
from shoal.objects.annotations import PLAN


def differences(source: Source, truth: Truth) -> list[str]:
    """What `source` and its world say otherwise than the stores of `truth`."""
    return sorted(
        [
            *_pods_and_places(source, truth),
            *_claims(source, truth),
            *_nodes(source, truth),
            *_waiting(source, truth),
        ]
    )


def _held(source: Source) -> dict[str, list[tuple[str, str, tuple[str, ...]]]]:
    """By pod uid: workload, node and leaves of what the world has for it."""
    held: dict[str, list[tuple[str, str, tuple[str, ...]]]] = defaultdict(list)
    for uid, entry in source.world.entries.items():
        flight = source.flights.get(uid)
        for number, place in entry.held.items():
            if uid.startswith("pod/"):
                pod = uid.removeprefix("pod/")
            elif flight is not None and number in flight.seats:
                pod = flight.seats[number].pod
            else:
                pod = ""
            held[pod].append((uid, place.node, place.leaves))
    return held


def _pods_and_places(source: Source, truth: Truth) -> Iterator[str]:
    held = _held(source)
    live: dict[str, Pod] = {pod.uid: pod for pod in truth.pods.values()}
    for uid, pod in live.items():
        name = "/".join(pod.key)
        places = held.pop(uid, [])
        on_node = bool(pod.spec.node_name) and pod.status.phase not in ("Succeeded", "Failed")
        let_go = not pod.spec.scheduling_gates and PLAN in pod.metadata.annotations
        if on_node and len(places) != 1:
            yield f"pod {name} is on {pod.spec.node_name}; the world has it {len(places)} times"
        elif on_node and places[0][1] != pod.spec.node_name:
            yield f"pod {name} is on node {pod.spec.node_name}; the world has it on {places[0][1]}"
        elif not on_node and places and (pod.is_ended or not (let_go or pod.spec.scheduling_gates)):
            yield f"pod {name} is on no node; the world has it on {places[0][1]}"
    for uid, places in held.items():
        for workload, node, _ in places:
            kept = uid == "" and not workload.startswith("pod/")
            if not kept:
                yield f"the world has {workload} on {node}; its pod {uid} is not there"


def _claims(source: Source, truth: Truth) -> Iterator[str]:
    """Every allocated device is held once, by whom the claim says or by the claim."""
    users: dict[tuple[str, str], int] = defaultdict(int)
    for entry in source.world.entries.values():
        for place in entry.held.values():
            for leaf in place.leaves:
                users[place.node, leaf] += 1
    identities = {
        (each.spec.driver, each.spec.pool.name, device.name): (each.spec.node_name, device)
        for each in truth.slices.values()
        for device in each.spec.devices
    }
    for claim in truth.claims.values():
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            node, device = identities.get((result.driver, result.pool, result.device), ("", None))
            attribute = device.attributes.get("uuid") if device is not None else None
            uuid = (attribute.string or "") if attribute is not None else ""
            if uuid and users[node, uuid] != 1:
                name = "/".join(claim.key)
                count = users[node, uuid]
                yield f"claim {name} holds {uuid} on {node}; the world has it held {count} times"
    for (node, leaf), count in users.items():
        listed = leaf in source.fleet.leaves_on(node)
        pinned = source.fleet.pin_of(leaf) is not None
        if count > 1 and listed and pinned:
            yield f"device {leaf} of {node} is held {count} times in the world"


def _nodes(source: Source, truth: Truth) -> Iterator[str]:
    known = set(source.fleet.inventories)
    there = {node.metadata.name for node in truth.nodes.values()}
    for name in known - there:
        yield f"node {name} is gone; the world has it"
    for name in there - known:
        yield f"node {name} is there; the world does not have it"


def _waiting(source: Source, truth: Truth) -> Iterator[str]:
    """Every gated pod of a managed namespace waits, is held back, or is being started."""
    held_back = {pod for hold in source.holds.values() for pod in hold.pods}
    managed = {
        each.metadata.name
        for each in truth.namespaces.values()
        if each.metadata.labels.get(MODE) == MANAGE
    }
    for pod in truth.pods.values():
        gates = [gate.name for gate in pod.spec.scheduling_gates]
        if gates != [PLAN] or pod.metadata.namespace not in managed or pod.is_terminating:
            continue
        uid = source.units.unit_of.get(pod.uid, "")
        if uid:
            entry = source.world.entries.get(uid)
            if entry is None or entry.state is not State.WAITING:
                yield f"pod {'/'.join(pod.key)} is gated; its workload {uid} does not wait"
        elif pod.uid not in held_back and not source.is_seated(pod.uid):
            yield f"pod {'/'.join(pod.key)} is gated; the world does not have it"
