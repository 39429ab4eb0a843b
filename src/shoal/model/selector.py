"""Sets of labelled things, chosen as Kubernetes chooses them."""

from collections.abc import Mapping
from dataclasses import dataclass

from shoal.model.request import Operator, Requirement


@dataclass(frozen=True, slots=True)
class Selector:
    """Everything whose labels meet all `requirements`; without any, everything.

    Operators are those of a Kubernetes label selector: `IN`, `NOT_IN`, `EXISTS`, `DOES_NOT_EXIST`.
    What lacks a label meets `NOT_IN`, as in Kubernetes.
    """

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether something with these labels is chosen."""
        return all(_meets(each, labels) for each in self.requirements)


def _meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case Operator.IN:
            return value in requirement.values
        case Operator.NOT_IN:
            return value not in requirement.values
        case Operator.EXISTS:
            return value is not None
        case Operator.DOES_NOT_EXIST:
            return value is None
    raise ValueError(f"a label selector has no operator {requirement.operator.value}")
