"""The ResourceClaim that stands for a pod's devices on the DRA channel.

Who does what: the webhook names the claim in the pod (`swap`), when no claim exists yet and the
pod has no uid. The executor, which knows the devices, creates it for the pod (`claim_body`); only
then is the gate lifted. kube-scheduler allocates, and the claim goes with its owner, the pod.

A claim has one request for each run of devices that the same containers use (`requests_of`), so
that init containers and app containers share devices as they do without DRA, and every container
sees its own only.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from shoal.catalog.catalog import Catalog
from shoal.kubernetes.admission.names import CLAIM_ENTRY, CLAIM_SUFFIX
from shoal.kubernetes.wire.meta import ObjectMeta
from shoal.kubernetes.wire.resource import DeviceClass, ResourceClaim
from shoal.objects.devices import Span

LONGEST_NAME: Final = 63
"""Longest name of a claim: what a label can hold."""

_DIGEST: Final = 10


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """One request of a claim: the pod's devices `start` to `start + count - 1`."""

    name: str
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Pin:
    """Which devices a claim must get, by an attribute that no two devices share.

    Attributes:
        driver: the DRA driver, in whose domain the attribute is.
        attribute: its name, such as `uuid`.
        values: of the pod's devices 0, 1, 2, ... in order.
    """

    driver: str
    attribute: str
    values: tuple[str, ...]

    def expression(self, request: ClaimRequest) -> str:
        """The CEL selector of one request."""
        wanted = self.values[request.start : request.start + request.count]
        listed = ", ".join(f'"{value}"' for value in wanted)
        return f'device.attributes["{self.driver}"].{self.attribute} in [{listed}]'


def claim_name(pod_name: str, distinct: str) -> str:
    """A name that no other pod's claim has, which still shows whose it is.

    Args:
        pod_name: the pod's name, or what its name will begin with.
        distinct: what sets the pod apart from others of that name, such as the uid of the
            admission request; the same gives the same name.
    """
    digest = hashlib.sha256(f"{pod_name}\n{distinct}".encode()).hexdigest()[:_DIGEST]
    room = LONGEST_NAME - len(CLAIM_SUFFIX) - _DIGEST - 1
    short = pod_name[:room].rstrip("-.") or "pod"
    return f"{short}-{digest}{CLAIM_SUFFIX}"


def requests_of(spans: Sequence[Span]) -> tuple[ClaimRequest, ...]:
    """The requests of the claim of a pod whose containers use these spans."""
    edges = sorted({span.start for span in spans} | {span.start + span.count for span in spans})
    return tuple(
        ClaimRequest(f"devices-{start}", start, end - start) for start, end in pairwise(edges)
    )


def uses_of(span: Span, requests: Sequence[ClaimRequest]) -> list[dict[str, str]]:
    """What a container's `resources.claims` says to see just the devices of its span."""
    mine = [r for r in requests if span.start <= r.start < span.start + span.count]
    if len(mine) == len(requests):
        return [{"name": CLAIM_ENTRY}]
    return [{"name": CLAIM_ENTRY, "request": request.name} for request in mine]


def claim_body(
    name: str,
    pod: ObjectMeta,
    requests: Sequence[ClaimRequest],
    device_class: str,
    *,
    pin: Pin | None = None,
    capacity: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The claim `name` of a pod, owned by it, ready for `Client.create` in the pod's namespace.

    Args:
        name: as the pod's annotation has it.
        pod: the pod's metadata.
        requests: of `requests_of`.
        device_class: the DeviceClass of the devices.
        pin: which devices; without it kube-scheduler chooses.
        capacity: what each request takes of devices that several claims share, as quantities.
    """
    return {
        "metadata": {
            "name": name,
            "namespace": pod.namespace,
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
            ],
        },
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": request.name,
                        "exactly": {
                            "deviceClassName": device_class,
                            "allocationMode": "ExactCount",
                            "count": request.count,
                            **_selectors(request, pin),
                            **({"capacity": {"requests": dict(capacity)}} if capacity else {}),
                        },
                    }
                    for request in requests
                ]
            }
        },
    }


def is_claim_of(claim: ResourceClaim, pod_uid: str) -> bool:
    """Whether a claim was made for this very pod, and not for another that named it first."""
    return any(
        owner.kind == "Pod" and owner.uid == pod_uid for owner in claim.metadata.owner_references
    )


def class_for(
    classes: Sequence[DeviceClass], catalog: Catalog, resource: str, vendor: str
) -> str | None:
    """The DeviceClass that stands for an extended resource, or for a vendor's whole devices.

    A class that names the resource itself wins; else the one that is named as a DRA driver of the
    vendor, which is how drivers install theirs.
    """
    names = sorted(each.metadata.name for each in classes)
    for each in sorted(classes, key=lambda each: each.metadata.name):
        if resource and each.spec.extended_resource_name == resource:
            return each.metadata.name
    drivers = {each.driver for each in catalog.clues if vendor in ("", each.vendor)} - {""}
    return next((name for name in names if name in drivers), None)


def _selectors(request: ClaimRequest, pin: Pin | None) -> dict[str, Any]:
    if pin is None:
        return {}
    return {"selectors": [{"cel": {"expression": pin.expression(request)}}]}
