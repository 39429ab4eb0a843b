"""What holds pods back for what they are and say themselves."""

from shoal.kubernetes.watching.asks import Ask
from shoal.kubernetes.watching.book import Book
from shoal.kubernetes.wire.pod import Pod
from shoal.model.hold import Hold, HoldReason
from shoal.model.refusal import Refusal, RefusalCode
from shoal.objects.annotations import MINIMUM, refuse


def strange(pod: Pod) -> Hold:
    """The hold of a pod that its owner did not make."""
    return Hold(HoldReason.STRANGE, (pod.uid,), (("owner", _owner_of(pod)),))


def hold_of(book: Book, pod: Pod, ask: Ask, uids: tuple[str, ...]) -> Hold | None:
    """Why pods with these uids, of which this is one, may not be planned; None where they may."""
    if ask.user is None:
        return Hold(HoldReason.ASKER_UNREAD, uids, (("owner", _owner_of(pod)),))
    refusal = ask.refusal or _wrong_minimum(book, pod, ask)
    if refusal is not None:
        return Hold(HoldReason.REFUSED, uids, refusal=refusal)
    ours = ask.claimed.name if ask.claimed is not None else ""
    for claim in pod.spec.resource_claims:
        name = claim.resource_claim_name or claim.resource_claim_template_name
        if name != ours:
            return Hold(HoldReason.OWN_CLAIM, uids, (("claim", name),))
    return None


def _wrong_minimum(book: Book, pod: Pod, ask: Ask) -> Refusal | None:
    """Why a pod cannot say how many pods of its gang have to run."""
    if ask.minimum is None:
        return None
    owner = pod.metadata.controller
    job = book.jobs.get(owner.uid) if owner is not None else None
    if job is None:
        name = owner.name if owner is not None else pod.metadata.name
        return refuse(RefusalCode.NOT_A_GANG, MINIMUM, str(ask.minimum), name=name)
    count = job.spec.parallelism
    if ask.minimum > count:
        code = RefusalCode.MINIMUM_ABOVE_COUNT
        return refuse(code, MINIMUM, str(ask.minimum), count=count)
    return None


def _owner_of(pod: Pod) -> str:
    owner = pod.metadata.controller
    return f"{owner.kind} {owner.name}" if owner is not None else ""
