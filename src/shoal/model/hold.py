"""Why pods are not even put before the planner, as a machine-readable value.

Sentences are made in `texts`.
"""

from dataclasses import dataclass
from enum import StrEnum

from shoal.model.refusal import Refusal


class HoldReason(StrEnum):
    """What keeps pods from being planned, or from going on with a plan.

    The details of each, by name:

    - `INCOMPLETE`: `owner`, `pods` that exist, `wanted`;
    - `QUOTA`: `quota`, `namespace`, `resource`, `used`, `asked`, `allowed`;
    - `QUOTA_REFUSED`: `quota`, `namespace`, `message` of the API server;
    - `REFUSED`: the refusal itself;
    - `OWN_CLAIM`: `claim`;
    - `STUCK`: `node`, `message` of kube-scheduler;
    - `FOLLOWS`: `workload` whose pods were evicted and are not gone yet;
    - `TOO_LATE`: `queue`, and for how long it waited (`took_us`), which is as long as it may;
    - `TOO_LONG`: `queue`, and for how long it ran (`took_us`), which is as long as it may;
    - `STRANGE`: `owner` that it names as its controller, which did not make it;
    - `ASKER_UNREAD`: `owner` that is being read, to know who asked for it.
    """

    INCOMPLETE = "incomplete"
    QUOTA = "quota"
    QUOTA_REFUSED = "quota-refused"
    REFUSED = "refused"
    OWN_CLAIM = "own-claim"
    STUCK = "stuck"
    FOLLOWS = "follows"
    TOO_LATE = "too-late"
    TOO_LONG = "too-long"
    STRANGE = "strange"
    ASKER_UNREAD = "asker-unread"


@dataclass(frozen=True, slots=True)
class Hold:
    """What keeps the pods with these uids back; `details` are the parameters of the sentence."""

    reason: HoldReason
    pods: tuple[str, ...]
    details: tuple[tuple[str, str | int], ...] = ()
    refusal: Refusal | None = None
