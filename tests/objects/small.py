"""A catalogue with the real names and few accelerators, and pods in one line."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from shoal.catalog.accelerators import Accelerator, Link
from shoal.catalog.catalog import Catalog
from shoal.catalog.load import load_catalog
from shoal.objects.manifests import Pod, read_pod

A100_80 = Accelerator(
    "A100-80GB", "nvidia", ("A100",), memory_mib=81_920, links=(Link("nvlink", 600),)
)
T4 = Accelerator("T4", "nvidia", memory_mib=15_360, links=(Link("pcie", 32),))
MI300 = Accelerator("MI300X", "amd", memory_mib=196_592, links=(Link("infinity-fabric", 896),))
ODD_40000 = Accelerator("ODD", "nvidia", memory_mib=40_000)


@cache
def catalogue(*accelerators: Accelerator) -> Catalog:
    """The catalogue of these accelerators; by default the one card of S07."""
    chosen = accelerators or (A100_80,)
    return replace(load_catalog(), accelerators={each.name: each for each in chosen})


def container(
    name: str = "main", limits: Mapping[str, Any] | None = None, *, sidecar: bool = False
) -> dict[str, Any]:
    body: dict[str, Any] = {"name": name, "image": "none"}
    if limits:
        body["resources"] = {"limits": dict(limits)}
    if sidecar:
        body["restartPolicy"] = "Always"
    return body


def manifest(
    limits: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "ns", "annotations": dict(annotations or {})},
        "spec": {"containers": [container(limits=limits)], **spec},
    }


def pod(
    limits: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Pod:
    return read_pod(manifest(limits, annotations, **spec))
