"""When the API server calls the webhook, and what it does without an answer.

The webhook is called for pods of managed namespaces only, and of those only for the ones that it
has something to do with. `failurePolicy` is `Ignore`, and nothing leaks by it: on the DRA channel,
and before Kubernetes 1.36 on both, a pod that the webhook did not treat is refused by the policy
`gated.shoal.dev`, which cannot be away and says what happened in a sentence of ours. Without an
answer a pod that only carries annotations passes, gated, and is judged when it is planned.

It is a mutating webhook even where it only refuses, because those come before policies, and its
sentence about an annotation says more than theirs. `reinvocationPolicy` is `Never`, as the webhook
takes its own marks on a new pod for forged; what another webhook adds later, policies judge.
"""

from base64 import b64encode
from dataclasses import dataclass
from typing import Any, Final

from shoal.catalog.names import Names
from shoal.kubernetes.admission import expressions as cel
from shoal.kubernetes.admission import names as known
from shoal.kubernetes.admission import stamps
from shoal.kubernetes.admission.policies import API, Manifest, Scope
from shoal.objects.annotations import STAMPS

TIMEOUT_S: Final = 5
"""How long the API server waits: the webhook answers from memory, in milliseconds."""

DRA_WEBHOOK: Final = "dra.shoal.dev"
GATE_WEBHOOK: Final = "gate.shoal.dev"
ANNOTATIONS_WEBHOOK: Final = "annotations.shoal.dev"
OWNERS_WEBHOOK: Final = "owners.shoal.dev"

PODS: Final[list[Manifest]] = [
    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
]


@dataclass(frozen=True, slots=True)
class Target:
    """Where the webhook answers: a Service of the cluster, or (for tests) a URL.

    `authority` is the certificate of who signed its own, in PEM; empty while there is none yet.
    """

    namespace: str = "shoal"
    service: str = "shoal-webhook"
    port: int = 443
    url: str = ""
    authority: bytes = b""

    def client_config(self, path: str) -> Manifest:
        """What the API server needs to call `path`."""
        config: dict[str, Any] = {}
        if self.authority:
            config["caBundle"] = b64encode(self.authority).decode()
        if self.url:
            return config | {"url": f"{self.url}{path}"}
        service = {"namespace": self.namespace, "name": self.service, "port": self.port}
        return config | {"service": service | {"path": path}}


def configuration(names: Names, scope: Scope, target: Target, *, gates: bool) -> Manifest:
    """The webhook configuration.

    `gates`: the webhook adds the gate, and who created what, as no policy can.
    """
    asks = cel.asks(names)
    # Every pod that asks carries who created it; that alone is no reason to ask about it.
    carries = cel.any_of(cel.carries_ours("annotations", STAMPS), cel.carries_ours("labels"))
    on_dra, others = scope.managed(In=[known.DRA]), scope.managed(NotIn=[known.DRA])
    path = f"/mutate/{known.DEVICE_PLUGIN}"
    webhooks = [
        _webhook(DRA_WEBHOOK, target, f"/mutate/{known.DRA}", on_dra, asks),
        _webhook(GATE_WEBHOOK, target, path, others, cel.any_of(asks, carries))
        if gates
        else _webhook(ANNOTATIONS_WEBHOOK, target, path, others, carries),
    ]
    if gates:
        condition, owners = stamps.concerns_stamps(), stamps.rules()
        webhooks.append(
            _webhook(OWNERS_WEBHOOK, target, "/stamp", scope.managed(), condition, owners)
        )
    return {
        "apiVersion": API,
        "kind": "MutatingWebhookConfiguration",
        "metadata": {
            "name": known.CONFIGURATION,
            "labels": {"app.kubernetes.io/managed-by": "shoal"},
        },
        "webhooks": webhooks,
    }


def _webhook(
    name: str,
    target: Target,
    path: str,
    namespaces: Manifest,
    condition: str,
    rules: list[Manifest] = PODS,
) -> Manifest:
    return {
        "name": name,
        "clientConfig": target.client_config(path),
        "rules": [rule | {"scope": "Namespaced"} for rule in rules],
        "namespaceSelector": namespaces,
        "matchConditions": [{"name": "concerns-shoal", "expression": condition}],
        "matchPolicy": "Equivalent",
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "Never",
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_S,
        "admissionReviewVersions": ["v1"],
    }
