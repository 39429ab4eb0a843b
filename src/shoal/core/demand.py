"""What is asked for: task classes, and how often each of them arrives."""

from dataclasses import dataclass

from shoal.model.request import Request


@dataclass(frozen=True, slots=True)
class TaskClass:
    """Pods that ask for the same; `weight` says how often they arrive beside other classes.

    Weights of one demand share a unit that only that demand knows (pods counted, or pods counted
    with a decay), so two demands are compared by shares of their total.
    """

    request: Request
    weight: int
