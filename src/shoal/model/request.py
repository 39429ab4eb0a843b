"""What one pod asks for, and on which nodes it may run."""

from dataclasses import dataclass
from enum import StrEnum

from shoal.model.isolation import NO_FLOOR, Isolation
from shoal.model.node import TaintEffect


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """`count` leaves on as many different devices.

    Whole devices if `whole`; else `memory_mib` and `compute_milli` (thousandths of a device) on
    each leaf. `accelerators` lists the models that will do; empty means any. `floor` is the least
    isolation of a share from its neighbours; whole devices have none.

    Where a leaf has several tenants, they are of one `party`, unless the pool says otherwise, and
    no two have the same `apart`, unless it is empty. The world writes a share's party, which is
    its queue right below the root, and keeps the replicas of one workload apart. A share that
    `keeps_to_party` is beside no other party whatever the pool says: its floor is meant for
    neighbours of its own.
    """

    count: int = 0
    whole: bool = True
    memory_mib: int = 0
    compute_milli: int = 0
    accelerators: tuple[str, ...] = ()
    floor: Isolation = NO_FLOOR
    party: str = ""
    apart: str = ""
    keeps_to_party: bool = False


class Operator(StrEnum):
    """Operators of a node selector requirement (the Kubernetes names)."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One test on a node label; `GT` and `LT` compare integers with the single value given."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """Requirements that must all hold; a term without any matches no node, as in Kubernetes.

    `expressions` test labels, `fields` test `metadata.name`, the only field Kubernetes knows.
    """

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


class TolerationOperator(StrEnum):
    """How a toleration compares with a taint (the Kubernetes names)."""

    EQUAL = "Equal"
    EXISTS = "Exists"


@dataclass(frozen=True, slots=True)
class Toleration:
    """Taints that a pod puts up with; an empty key (with `EXISTS`) or effect matches every one."""

    key: str = ""
    operator: TolerationOperator = TolerationOperator.EQUAL
    value: str = ""
    effect: TaintEffect | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What one pod asks for: host resources, devices, and where it may run.

    `selector` holds label equalities, sorted by key. `affinity` holds the required terms, of which
    one must hold; no terms means no restriction. `mask` names a set of nodes that an adapter
    maintains for rules which Shoal does not model (empty: none); outside it the pod never runs.
    """

    cpu_milli: int = 0
    memory_mib: int = 0
    devices: DeviceRequest = DeviceRequest()
    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    mask: str = ""
