"""The tests on pods that policies and match conditions make, as CEL.

They are generated from the catalogue's names, so that what the API server holds back is what
Shoal can read. Every access is guarded: an expression that fails would refuse the pod. Sources:
Common Expression Language in Kubernetes; the fields are those of the pod's API.
"""

import json
import re
from collections.abc import Collection, Iterable
from typing import Final

from shoal.catalog.names import Names, Place
from shoal.kubernetes.admission.names import CLAIM_SUFFIX, GATE
from shoal.objects.annotations import ASKING, PREFIX

PODS_OF_NODES: Final = "kubernetes.io/config.mirror"
"""The annotation of mirror pods, which report what a kubelet runs by itself."""

DEVICE_VARIABLES: Final = (
    "NVIDIA_VISIBLE_DEVICES",
    "AMD_VISIBLE_DEVICES",
    "ASCEND_VISIBLE_DEVICES",
)
"""Variables by which vendors' container runtimes hand out devices without being asked to."""

CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""Resource names that ask for any DeviceClass, whatever the catalogue knows (KEP-5004)."""

_HARMLESS_DEVICES: Final = ("", "none", "void")
"""Values by which they hand out nothing; an empty one is not sent at all."""


def text(value: str) -> str:
    """A CEL string."""
    return json.dumps(value, ensure_ascii=False)


def listed(values: Iterable[str]) -> str:
    """A CEL list of strings."""
    return "[" + ", ".join(text(value) for value in values) + "]"


def any_of(*tests: str) -> str:
    """Whether one test holds."""
    return "(" + " || ".join(tests) + ")"


def device_name(names: Names, variable: str) -> str:
    """Whether a resource name asks for devices."""
    exact = [name.name for name in names.exact.values() if name.place is Place.LIMITS]
    patterns = [pattern.pattern for pattern, name in names.patterns if name.place is Place.LIMITS]
    # CEL's expressions are RE2, which writes groups as Python does.
    anyone = "|".join(re.sub(r"\(\?P<\w+>", "(", pattern) for pattern in patterns)
    tests = [f"{variable} in {listed(exact)}", f"{variable}.startsWith({text(CLASS_PREFIX)})"]
    if anyone:
        tests.append(f"{variable}.matches({text(f'^({anyone})$')})")
    return any_of(*tests)


def containers(field: str, test: str) -> str:
    """Whether `test` holds for a container `c` of one of the pod's lists."""
    return f"(has(object.spec.{field}) && object.spec.{field}.exists(c, {test}))"


def any_container(test: str) -> str:
    """Whether `test` holds for any container `c` of a pod."""
    return any_of(containers("containers", test), containers("initContainers", test))


def limits_ask(names: Names) -> str:
    """Whether a container's limits ask for devices; a count of 0 does not."""
    return any_container(
        "has(c.resources) && has(c.resources.limits) && c.resources.limits.exists(k, "
        f"{device_name(names, 'k')} && string(c.resources.limits[k]) != '0')"
    )


def asks_by_class() -> str:
    """Whether a container's limits name a DeviceClass."""
    return any_container(
        "has(c.resources) && has(c.resources.limits) && "
        f"c.resources.limits.exists(k, k.startsWith({text(CLASS_PREFIX)}))"
    )


def annotations_ask() -> str:
    """Whether annotations ask for devices by themselves."""
    return (
        "(has(object.metadata.annotations) && "
        f"{listed(ASKING)}.exists(k, k in object.metadata.annotations))"
    )


def claims_ask() -> str:
    """Whether the pod names claims."""
    return "(has(object.spec.resourceClaims) && size(object.spec.resourceClaims) > 0)"


def asks(names: Names) -> str:
    """Whether a pod may need an accelerator."""
    return any_of(limits_ask(names), annotations_ask(), claims_ask())


def has_gate(variable: str = "object") -> str:
    """Whether a pod has the gate."""
    return (
        f"(has({variable}.spec.schedulingGates) && "
        f"{variable}.spec.schedulingGates.exists(g, g.name == {text(GATE)}))"
    )


def has_node() -> str:
    """Whether a pod is bound from the start."""
    return "(has(object.spec.nodeName) && object.spec.nodeName != '')"


def is_mirror() -> str:
    """Whether a kubelet reports a pod that it runs by itself."""
    return (
        f"(has(object.metadata.annotations) && {text(PODS_OF_NODES)} in object.metadata.annotations"
        " && 'system:nodes' in request.userInfo.groups)"
    )


def carries_ours(field: str, but: Collection[str] = ()) -> str:
    """Whether a key of ours, `but` for some, is among the pod's `annotations` or `labels`."""
    return f"(has(object.metadata.{field}) && object.metadata.{field}.exists(k, {_is_ours(but)}))"


def keeps_ours(field: str, but: Collection[str] = ()) -> str:
    """Whether an update leaves keys of ours, `but` for some, in `annotations` or `labels` alone."""
    old, new = (f"{which}.metadata.{field}" for which in ("oldObject", "object"))
    ours = _is_ours(but)
    return (
        f"(!has({old}) || {old}.all(k, !({ours}) || "
        f"(has({new}) && k in {new} && {new}[k] == {old}[k]))) && "
        f"(!has({new}) || {new}.all(k, !({ours}) || "
        f"(has({old}) && k in {old})))"
    )


def _is_ours(but: Collection[str]) -> str:
    ours = f"k.startsWith({text(PREFIX)})"
    return f"{ours} && !(k in {listed(but)})" if but else ours


def takes_devices_unasked() -> str:
    """Whether a container `c` sets a variable that makes a runtime hand out devices."""
    return (
        f"has(c.env) && c.env.exists(e, e.name in {listed(DEVICE_VARIABLES)} && "
        f"(has(e.valueFrom) || (has(e.value) && !(e.value in {listed(_HARMLESS_DEVICES)}))))"
    )


def claim_is_ours(variable: str) -> str:
    """Whether an entry of `spec.resourceClaims` names a claim that Shoal makes."""
    return (
        f"(has({variable}.resourceClaimName) && "
        f"{variable}.resourceClaimName.endsWith({text(CLAIM_SUFFIX)}))"
    )


def by_others(usernames: Iterable[str]) -> str:
    """Whether somebody else than Shoal asks."""
    return f"!(request.userInfo.username in {listed(usernames)})"
