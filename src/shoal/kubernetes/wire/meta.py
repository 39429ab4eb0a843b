"""What every Kubernetes object has."""

from datetime import datetime
from typing import Self

import msgspec

EMPTY = msgspec.Raw()
"""A subtree that is not there."""


class Wire(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The base of all wire types: immutable trees, which the garbage collector need not follow."""


def own(raw: msgspec.Raw) -> msgspec.Raw:
    """The subtree in memory of its own.

    A decoded `Raw` is a window on the whole message: one kept affinity would keep a page of pods.
    """
    return raw.copy() if raw else EMPTY


class OwnerReference(Wire, frozen=True):
    """Who an object belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Wire, frozen=True):
    """The metadata of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    generate_name: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages the object, if one does."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class ListMeta(Wire, frozen=True):
    """The metadata of a list: its version, and where the next page starts."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Object(Wire, frozen=True):
    """Any object with metadata."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace (empty for what is of the cluster) and name."""
        return (self.metadata.namespace, self.metadata.name)

    @property
    def uid(self) -> str:
        """The identity that no successor of the same name shares."""
        return self.metadata.uid


class Condition(Wire, frozen=True):
    """One condition of an object's status."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class Conditioned(Wire, frozen=True):
    """A status that has conditions."""

    conditions: tuple[Condition, ...] = ()

    def condition(self, type_: str) -> Condition | None:
        """The condition of this type, if it is there."""
        return next((each for each in self.conditions if each.type == type_), None)

    def is_true(self, type_: str) -> bool:
        """Whether the condition of this type says `True`."""
        found = self.condition(type_)
        return found is not None and found.status == "True"


class ObjectReference(Wire, frozen=True):
    """A reference to an object, as far as the referring field gives one."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""

    @classmethod
    def to(cls, api_version: str, kind: str, metadata: ObjectMeta) -> Self:
        """A reference to the object with this metadata."""
        return cls(api_version, kind, metadata.namespace, metadata.name, metadata.uid)
