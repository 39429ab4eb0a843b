"""The parts of Kubernetes' manifests that requests are read from.

The protocols say which fields that is; whatever has them under these names can be read. The
structs are for manifests as plain documents: fields that no request depends on are skipped, as a
manifest is Kubernetes' own and may hold anything. Quantities stay strings.
"""

# ruff: noqa: D102  (the fields of the protocols are Kubernetes' own)
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

T = TypeVar("T")


class ClaimUseLike(Protocol):
    """A container's use of one of its pod's claims; without `request`, of the whole claim."""

    @property
    def name(self) -> str: ...
    @property
    def request(self) -> str: ...


class ResourcesLike(Protocol):
    """What a container asks for, as quantities by resource name."""

    @property
    def requests(self) -> Mapping[str, str]: ...
    @property
    def limits(self) -> Mapping[str, str]: ...
    @property
    def claims(self) -> Sequence[ClaimUseLike]: ...


class ContainerLike(Protocol):
    """A container; an init container that restarts `Always` is a sidecar."""

    @property
    def name(self) -> str: ...
    @property
    def resources(self) -> ResourcesLike: ...
    @property
    def restart_policy(self) -> str: ...


class TolerationLike(Protocol):
    """A taint that a pod puts up with."""

    @property
    def key(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def effect(self) -> str: ...


class PodSpecLike(Protocol):
    """What a pod asks for; `affinity` is raw JSON, empty where there is none."""

    @property
    def node_name(self) -> str: ...
    @property
    def node_selector(self) -> Mapping[str, str]: ...
    @property
    def affinity(self) -> bytes | msgspec.Raw: ...
    @property
    def tolerations(self) -> Sequence[TolerationLike]: ...
    @property
    def containers(self) -> Sequence[ContainerLike]: ...
    @property
    def init_containers(self) -> Sequence[ContainerLike]: ...
    @property
    def resources(self) -> ResourcesLike | None: ...
    @property
    def overhead(self) -> Mapping[str, str]: ...
    @property
    def termination_grace_period_seconds(self) -> int: ...
    @property
    def active_deadline_seconds(self) -> int | None: ...


class MetadataLike(Protocol):
    """Names and marks of an object."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def annotations(self) -> Mapping[str, str]: ...


class PodLike(Protocol):
    """A pod, or the template of one."""

    @property
    def metadata(self) -> MetadataLike: ...
    @property
    def spec(self) -> PodSpecLike: ...


class Part(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The base of structs for manifests: immutable, fields by Kubernetes' names."""


class ClaimUse(Part, frozen=True):
    """See `ClaimUseLike`."""

    name: str = ""
    request: str = ""


class Resources(Part, frozen=True):
    """See `ResourcesLike`. Numbers, which YAML allows as quantities, are read as their text."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    claims: tuple[ClaimUse, ...] = ()


class Container(Part, frozen=True):
    """See `ContainerLike`."""

    name: str = ""
    resources: Resources = Resources()
    restart_policy: str = ""


class Toleration(Part, frozen=True):
    """See `TolerationLike`."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class PodSpec(Part, frozen=True):
    """See `PodSpecLike`."""

    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: msgspec.Raw = msgspec.Raw()
    tolerations: tuple[Toleration, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: Resources | None = None
    overhead: dict[str, str] = {}
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None


class Metadata(Part, frozen=True):
    """See `MetadataLike`."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Pod(Part, frozen=True):
    """See `PodLike`."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()


_QUANTITIES: Final = frozenset({"limits", "requests", "overhead"})


def read_pod(manifest: Mapping[str, Any]) -> Pod:
    """The pod, or the template of one, in a manifest.

    Raises ValueError with a sentence that names the field whose type is wrong.
    """
    return read_manifest(manifest, Pod)


def read_manifest(manifest: Mapping[str, Any], as_type: type[T]) -> T:
    """A manifest as one of the structs here.

    Raises ValueError with a sentence that names the field whose type is wrong.
    """
    try:
        return msgspec.json.decode(msgspec.json.encode(_plain(manifest)), type=as_type)
    except (msgspec.MsgspecError, TypeError) as error:
        raise ValueError(f"Kubernetes would not take this manifest: {error}") from error
    except RecursionError:
        said = "Kubernetes would not take this manifest: it is nested too deep"
        raise ValueError(said) from None


def _plain(value: Any, under: str = "") -> Any:
    """The document without empty fields, with quantities as text, as an API server gives it."""
    if isinstance(value, Mapping):
        kept = {key: each for key, each in value.items() if each is not None}
        if under in _QUANTITIES:
            return {key: _text(each) for key, each in kept.items()}
        return {key: _plain(each, under=str(key)) for key, each in kept.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _text(value: Any) -> Any:
    """A number as its text; YAML lets people write quantities as numbers."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
