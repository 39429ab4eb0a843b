"""Objects are read as the API sends them, oddities included."""

import sys
from typing import Any

import msgspec
import pytest

from shoal.kubernetes.api.errors import GoneError, WireError
from shoal.kubernetes.wire import kinds
from shoal.kubernetes.wire.kinds import (
    DISRUPTION_BUDGETS,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Kind,
)

KINDS = [kind for kind in vars(kinds).values() if isinstance(kind, Kind)]
GONE = (
    b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
    b'"message":"too old resource version: 1 (5)","reason":"Expired","code":410}}'
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource)
def test_every_kind_knows_an_error_a_bookmark_and_nonsense(kind: Kind[Any]) -> None:
    with pytest.raises(GoneError, match="too old"):
        kind.read_event(GONE)
    bookmark = kind.read_event(
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","creationTimestamp":null},'
        b'"spec":{"containers":null,"template":{"spec":{"containers":null}}},"status":{}}}'
    )
    assert (bookmark.type, bookmark.object.metadata.resource_version) == ("BOOKMARK", "7")
    for line in (b"{", b'{"type":"ADDED"}', b'{"type":"ADDED","object":{"metadata":{"name":1}}}'):
        with pytest.raises(WireError, match=kind.plural):
            kind.read_event(line)


POD = b"""{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"ns","uid":"u",
"resourceVersion":"12","creationTimestamp":"2026-11-29T16:05:06Z","managedFields":[{"manager":"m"}],
"deletionTimestamp":"2026-11-29T16:06:06Z","ownerReferences":[{"apiVersion":"batch/v1","kind":"Job",
"name":"j","uid":"ju","controller":true,"blockOwnerDeletion":true}]},
"spec":{"affinity":{"nodeAffinity":{"x":[1,2]}},"schedulingGates":[{"name":"shoal.dev/plan"}],
"priority":-5,"containers":[{"name":"c","image":"i","env":[{"name":"E"}],"resources":{"limits":
{"nvidia.com/gpu":"2"},"requests":{"cpu":"500m"},"claims":[{"name":"gpu"}]}}],
"resourceClaims":[{"name":"gpu","resourceClaimName":"a-gpu"}]},
"status":{"phase":"Running","conditions":[{"type":"PodScheduled","status":"False",
"reason":"SchedulingGated"}],"containerStatuses":[{"name":"c","ready":true,"restartCount":2,
"state":{"terminated":{"exitCode":137,"reason":"OOMKilled","finishedAt":"2026-11-29T16:05:59Z"}},
"allocatedResourcesStatus":[{"name":"nvidia.com/gpu","resources":[{"resourceID":"GPU-1",
"health":"Healthy"}]}]}]}}"""


def test_a_pod_has_what_shoal_needs_of_it() -> None:
    pod = PODS.read(POD)
    assert pod.key == ("ns", "a")
    assert pod.metadata.controller is not None
    assert pod.metadata.controller.kind == "Job"
    assert pod.is_terminating
    assert not pod.is_ended
    assert pod.has_gate("shoal.dev/plan")
    assert pod.spec.containers[0].resources.limits == {"nvidia.com/gpu": "2"}
    assert msgspec.json.decode(pod.spec.affinity) == {"nodeAffinity": {"x": [1, 2]}}
    assert pod.spec.priority == -5
    scheduled = pod.status.condition("PodScheduled")
    assert scheduled is not None
    assert scheduled.reason == "SchedulingGated"
    assert not pod.status.is_true("PodScheduled")
    status = pod.status.container_statuses[0]
    assert status.state.terminated is not None
    assert status.state.terminated.exit_code == 137
    assert status.allocated_resources_status[0].resources[0].resource_id == "GPU-1"


def test_a_kept_subtree_does_not_keep_its_page() -> None:
    page = b'{"items":[' + POD + b"," + b" " * 1_000_000 + POD + b"]}"
    pods = PODS.read_page(page).items
    assert len(bytes(pods[0].spec.affinity)) < 100
    assert sys.getrefcount(page) == 2


def test_slices_and_claims_are_read() -> None:
    found = RESOURCE_SLICES.read(
        b'{"metadata":{"name":"s"},"spec":{"driver":"gpu.nvidia.com","nodeName":"n1",'
        b'"pool":{"name":"n1","generation":3,"resourceSliceCount":1},"devices":[{"name":"gpu-0",'
        b'"attributes":{"uuid":{"string":"GPU-1"},"index":{"int":0},"mig":{"bool":false}},'
        b'"capacity":{"memory":{"value":"80Gi"}},"allowMultipleAllocations":true}]}}'
    )
    device = found.spec.devices[0]
    assert device.attributes["uuid"].string == "GPU-1"
    assert device.attributes["index"].integer == 0
    assert device.attributes["mig"].boolean is False
    assert device.capacity["memory"].value == "80Gi"
    claim = RESOURCE_CLAIMS.read(
        b'{"metadata":{"name":"c"},"spec":{"devices":{"requests":[{"name":"g","exactly":'
        b'{"deviceClassName":"gpu","count":2,"selectors":[{"cel":{"expression":"true"}}]}}]}},'
        b'"status":{"allocation":{"devices":{"results":[{"request":"g","driver":"d","pool":"p",'
        b'"device":"gpu-0","shareID":"s1","consumedCapacity":{"memory":"30Gi"}}]}},'
        b'"reservedFor":[{"resource":"pods","name":"a","uid":"u"}]}}'
    )
    assert claim.status.allocation is not None
    held = claim.status.allocation.devices.results[0]
    assert (held.device, held.share_id, held.consumed_capacity) == (
        "gpu-0",
        "s1",
        {"memory": "30Gi"},
    )
    ask = claim.spec.devices.requests[0].exactly
    assert ask is not None
    assert (ask.count, ask.selectors[0].cel.expression) == (2, "true")


def test_budgets_take_counts_and_percentages_and_nodes_say_whether_they_are_ready() -> None:
    for bound, text in ((1, b"1"), ("50%", b'"50%"')):
        budget = DISRUPTION_BUDGETS.read(b'{"spec":{"minAvailable":' + text + b"}}")
        assert budget.spec.min_available == bound
    node = NODES.read(b'{"status":{"conditions":[{"type":"Ready","status":"True"}]}}')
    assert node.is_ready
    assert not NODES.read(
        b'{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}'
    ).is_ready


def test_objects_are_frozen() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        PODS.read(POD).spec.node_name = "n"  # type: ignore[misc]
