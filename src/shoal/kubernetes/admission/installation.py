"""All objects that admission needs in one cluster, and the rights of who works with them.

`installation` makes them; `install` applies them and `uninstall` takes them away. The Helm chart
renders the same objects.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from shoal.catalog.names import Names
from shoal.kubernetes.admission import names as known
from shoal.kubernetes.admission import policies
from shoal.kubernetes.admission.keeper import SECRET
from shoal.kubernetes.admission.kinds import INSTALLED, WEBHOOKS
from shoal.kubernetes.admission.policies import Manifest, Scope
from shoal.kubernetes.admission.stamps import Stamping
from shoal.kubernetes.admission.webhooks import Target, configuration
from shoal.kubernetes.api.client import Client
from shoal.kubernetes.api.errors import NotFoundError
from shoal.kubernetes.watching.controllers import KUBERNETES_OWN, Controllers
from shoal.kubernetes.watching.owners import OWNER_KINDS, WATCHED
from shoal.kubernetes.wire.kinds import VALIDATING_POLICIES
from shoal.model.queue import QueueTree
from shoal.objects.rights import SERVICE_ACCOUNTS, named_groups
from shoal.texts.language import Language

FIELD_MANAGER: Final = "shoal-installation"

NO_QUEUES: Final = QueueTree()

NAMES: Final = (
    *(known.CONFIGURATION, known.GATE_POLICY, known.GATED_POLICY, known.GUARD_POLICY),
    *(known.FORM_POLICY, known.DEBUG_POLICY, known.CLAIMS_POLICY, known.JOBS_POLICY),
    *(known.NAMESPACES_POLICY, known.STAMPS_POLICY),
)
"""Names of all objects that are ever installed."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """Where Shoal runs and as whom.

    Attributes:
        namespace: of its processes, which is never managed.
        service_accounts: those that may lift the gate and make claims.
        spared: further namespaces that are never managed.
        controllers: accounts that make objects for others; the scheduler is to know the same.
    """

    namespace: str = "shoal"
    service_accounts: tuple[str, ...] = ("shoal-scheduler",)
    spared: tuple[str, ...] = ("kube-system", "kube-node-lease", "kube-public")
    controllers: Controllers = KUBERNETES_OWN

    @property
    def usernames(self) -> tuple[str, ...]:
        """The service accounts as Kubernetes names users."""
        prefix = f"{SERVICE_ACCOUNTS}{self.namespace}:"
        return tuple(prefix + name for name in self.service_accounts)

    def scope(self, tree: QueueTree, language: Language = Language.ENGLISH) -> Scope:
        """Where policies act, and for whom they make way."""
        stamping = Stamping(self.controllers, named_groups(tree))
        return Scope(self.usernames, (self.namespace, *self.spared), language, stamping)


@dataclass(frozen=True, slots=True)
class Right:
    """What one process must be allowed to do.

    `names` narrows it to objects of these names; `namespaced` to Shoal's own namespace.
    """

    process: str
    group: str
    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    namespaced: bool = False
    reason: str = ""


RIGHTS: Final = (
    Right(
        "webhook",
        "",
        "secrets",
        ("get", "patch"),
        (SECRET,),
        namespaced=True,
        reason="its certificate",
    ),
    # A name cannot narrow the right to create.
    Right("webhook", "", "secrets", ("create",), namespaced=True, reason="its first certificate"),
    Right(
        "webhook",
        WEBHOOKS.group,
        WEBHOOKS.plural,
        ("get", "patch"),
        (known.CONFIGURATION,),
        reason="to tell API servers whom to trust when the certificate is renewed",
    ),
    Right(
        "scheduler",
        "",
        "pods",
        ("get", "list", "watch", "patch", "delete"),
        reason="to lift the gate, and to take back starts that did not come true",
    ),
    Right(
        "scheduler",
        "",
        "pods/eviction",
        ("create",),
        reason="gangs that are not whole in time, and evictions",
    ),
    Right("scheduler", "", "nodes", ("list", "watch"), reason="what nodes offer"),
    Right("scheduler", "", "resourcequotas", ("list", "watch"), reason="room for claims"),
    *(
        Right("scheduler", group, resource, ("list", "watch"), reason=reason)
        for group, resource, reason in (
            ("resource.k8s.io", "resourceslices", "devices"),
            ("resource.k8s.io", "deviceclasses", "what claims ask for"),
            ("batch", "jobs", "how many pods start together"),
            ("apps", "replicasets", "how many pods are wanted"),
            ("apps", "statefulsets", "how many pods are wanted"),
            ("policy", "poddisruptionbudgets", "how many pods may be evicted"),
        )
    ),
    Right(
        "scheduler",
        "events.k8s.io",
        "events",
        ("get", "create", "patch"),
        reason="to tell people why",
    ),
    Right(
        "scheduler",
        "coordination.k8s.io",
        "leases",
        ("get", "create", "patch"),
        namespaced=True,
        reason="one leader",
    ),
    Right(
        "scheduler",
        "",
        "configmaps",
        ("get", "create", "patch"),
        namespaced=True,
        reason="what has to be remembered",
    ),
    Right(
        "scheduler",
        "resource.k8s.io",
        "resourceclaims",
        ("get", "list", "watch", "create", "delete"),
        reason="the claims that pods name",
    ),
    Right("scheduler", "", "namespaces", ("get", "list", "watch"), reason="mode and channel"),
    Right(
        "scheduler",
        VALIDATING_POLICIES.group,
        VALIDATING_POLICIES.plural,
        ("get",),
        (known.STAMPS_POLICY,),
        reason="since when it is noted who asks",
    ),
    *(
        Right("scheduler", each.group, each.plural, ("get",), reason="who asked for it")
        for each in OWNER_KINDS
        if (each.group, each.name) not in WATCHED
    ),
    Right("release", "", "namespaces", ("list", "patch"), reason="to stop managing them"),
    Right("release", "", "pods", ("list", "patch"), reason="to lift every gate"),
    Right("release", "resource.k8s.io", "resourceclaims", ("create",), reason="claims without pin"),
    Right("release", "resource.k8s.io", "deviceclasses", ("list",), reason="claims without pin"),
    *(
        Right(
            "release",
            kind.group,
            kind.plural,
            ("get", "delete"),
            NAMES,
            reason="to take admission away",
        )
        for kind in INSTALLED
    ),
)
"""Every (verb, resource) that is needed, by process. `release` is whoever runs
`shoal release`: no account of Shoal's has its rights."""


def installation(
    version: tuple[int, int],
    names: Names,
    accounts: Accounts,
    target: Target,
    *,
    tree: QueueTree = NO_QUEUES,
    language: Language = Language.ENGLISH,
) -> list[Manifest]:
    """The objects for a cluster, guards last, so that what they ask for exists before they do.

    Args:
        version: of the API server, such as (1, 37).
        names: of the catalogue that the processes use.
        accounts: where Shoal runs and as whom.
        target: where the webhook answers.
        tree: the queues, of whose priorities the policies know the groups.
        language: of what the API server says in Shoal's name.
    """
    scope = accounts.scope(tree, language)
    has_policy = version >= known.MUTATING_POLICY_SINCE
    objects = [configuration(names, scope, target, gates=not has_policy)]
    if has_policy:
        objects += policies.gating(names, scope)
    return objects + policies.validating(names, scope)


async def install(client: Client, objects: Sequence[Manifest]) -> None:
    """Create them, or make them so; what others added to them stays. Raises KubernetesError."""
    kinds = {kind.name: kind for kind in INSTALLED}
    for each in objects:
        body: dict[str, Any] = {
            key: value for key, value in each.items() if key not in ("apiVersion", "kind")
        }
        await client.apply(
            kinds[each["kind"]],
            each["metadata"]["name"],
            body,
            manager=FIELD_MANAGER,
            force=True,
        )


async def uninstall(client: Client) -> int:
    """Take them away, guards first; returns how many there were. Raises KubernetesError.

    Kinds that the server does not have, and objects that are gone already, are passed over.
    """
    removed = 0
    for kind in INSTALLED:
        for name in NAMES:
            try:
                found = await client.get(kind, name)
                await client.delete(kind, name, uid=found.uid)
            except NotFoundError:
                continue
            removed += 1
    return removed
