"""What can go wrong between Shoal and an API server.

KubernetesError
    IdentityError               no usable kubeconfig, exec plugin or service account
    UnreachableError            no answer: refused, reset, timed out, TLS refused
    WireError                   an answer that is not what the API promises
    StatusError                 the server answered with a Status of failure
        BadRequestError         400
        UnauthorizedError       401, after the credentials were read again
        ForbiddenError          403
            QuotaExceededError      a ResourceQuota has no room
        NotFoundError           404
        ConflictError           409, or 422 about a uid: a precondition did not hold
            AlreadyExistsError      the name is taken
        GoneError               410: the version asked for is no longer, or not yet, known
        InvalidError            422
        TooManyRequestsError    429
            DisruptionBlockedError  a PodDisruptionBudget refuses the eviction for now
        ServerError             5xx
"""

import re
from typing import Final

import msgspec

CAUSE_TOO_LARGE_VERSION: Final = "ResourceVersionTooLarge"
"""The cause of a refused watch whose version this server has not reached (apimachinery v1)."""

CAUSE_DISRUPTION_BUDGET: Final = "DisruptionBudget"
"""The cause of a refused eviction (k8s.io/api policy/v1)."""

_EXCEEDED_QUOTA = re.compile(r"exceeded quota: ([^,\s]+)")


class StatusCause(msgspec.Struct, frozen=True, rename="camel"):
    """One detailed cause of a refusal."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """What a refusal is about, and when to come back."""

    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The API server's own account of a failure (kind `Status`, version `v1`)."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None

    def has_cause(self, reason: str) -> bool:
        """Whether the details name this cause."""
        return self.details is not None and any(c.reason == reason for c in self.details.causes)

    @property
    def retry_after_s(self) -> float | None:
        """How long the server asks to wait, where it says so."""
        seconds = self.details.retry_after_seconds if self.details is not None else 0
        return float(seconds) if seconds > 0 else None


class KubernetesError(Exception):
    """The root of what this room raises on purpose."""


class IdentityError(KubernetesError):
    """There is no way to know which server to call, or as whom."""


class UnreachableError(KubernetesError):
    """The server gave no answer. Whether a write arrived is not known."""


class WireError(KubernetesError):
    """An answer cannot be read as the API promises it."""


class StatusError(KubernetesError):
    """The server refused or failed.

    `maybe_done` is true when an earlier try of the same call broke off without an answer. The call
    may then have been carried out already, and a conflict or a taken name may be its own trace.
    """

    def __init__(self, status: Status, call: str = "", *, maybe_done: bool = False) -> None:
        """Keep the server's status and the call (such as `PATCH pods/a`) that it answers."""
        self.status = status
        self.call = call
        self.maybe_done = maybe_done
        super().__init__(status, call)

    def __str__(self) -> str:
        """One sentence for people: the call, the code and the server's words."""
        words = self.status.message or self.status.reason or "no message"
        return f"{self.call or 'the watch'} was answered with {self.status.code}: {words}"


class BadRequestError(StatusError):
    """400."""


class UnauthorizedError(StatusError):
    """401, although the credentials were read again."""


class ForbiddenError(StatusError):
    """403."""


class QuotaExceededError(ForbiddenError):
    """403 because a ResourceQuota has no room left; `quota` is its name."""

    @property
    def quota(self) -> str:
        """The name of the ResourceQuota that refused."""
        found = _EXCEEDED_QUOTA.search(self.status.message)
        return found.group(1) if found else ""


class NotFoundError(StatusError):
    """404."""


class ConflictError(StatusError):
    """A precondition (uid, resourceVersion) did not hold, or somebody wrote in between."""


class AlreadyExistsError(ConflictError):
    """409: an object of this name exists."""


class GoneError(StatusError):
    """410: this version, or this continue token, is no longer known: list again."""


class InvalidError(StatusError):
    """422."""


class TooManyRequestsError(StatusError):
    """429, still, after the tries that were allowed."""


class DisruptionBlockedError(TooManyRequestsError):
    """429: a PodDisruptionBudget forbids this eviction now."""


class ServerError(StatusError):
    """5xx, still, after the tries that were allowed."""


_BY_CODE: Final[dict[int, type[StatusError]]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
}


def _is_about_uid(status: Status) -> bool:
    """Whether a patch was refused because another object has this name now.

    For the API server a uid in a patch is a field that does not change, so it answers 422.
    """
    causes = status.details.causes if status.details is not None else ()
    return any(cause.field == "metadata.uid" for cause in causes)


def status_error(status: Status, call: str = "", *, maybe_done: bool = False) -> StatusError:
    """The error for a status: by its code, refined by its reason, causes and message."""
    kind = _BY_CODE.get(status.code, ServerError if status.code >= 500 else StatusError)
    if status.reason == "AlreadyExists":
        kind = AlreadyExistsError
    elif status.code == 403 and _EXCEEDED_QUOTA.search(status.message):
        kind = QuotaExceededError
    elif status.code == 429 and status.has_cause(CAUSE_DISRUPTION_BUDGET):
        kind = DisruptionBlockedError
    elif status.code == 422 and _is_about_uid(status):
        kind = ConflictError
    elif status.reason == "Expired" or status.has_cause(CAUSE_TOO_LARGE_VERSION):
        kind = GoneError
    return kind(status, call, maybe_done=maybe_done)
