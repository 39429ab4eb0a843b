"""Admission policies: the gate, and what guards it. They run inside the API server.

A policy refuses in one sentence of `texts.admission`. None of them matches outside managed
namespaces, but the one that keeps namespaces' own labels legible, and the one that keeps the names
of Shoal's claims. Facts: design of the gate by ApplyConfiguration and of its guard were tried on
Kubernetes 1.37; `namespaceObject` and messages are those of `admissionregistration.k8s.io/v1`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shoal.catalog.names import Names
from shoal.kubernetes.admission import expressions as cel
from shoal.kubernetes.admission import names as known
from shoal.kubernetes.admission import stamps
from shoal.kubernetes.admission.stamps import DEFAULT_STAMPING, Stamping
from shoal.model.workload import WorkloadType
from shoal.objects import annotations as keys
from shoal.objects.durations import FORM as DURATION_FORM
from shoal.objects.moments import FORM as MOMENT_FORM
from shoal.texts.admission import Rule, rule_text
from shoal.texts.language import Language

Manifest = dict[str, Any]

API: Final = "admissionregistration.k8s.io/v1"

FOREIGN_MARKS: Final = (
    r"hami\.io/(.*-)?(devices-to-allocate|devices-allocated)",
    r"hami\.io/(vgpu-node|vgpu-time|bind-time|bind-phase|webhook)",
    r"volcano\.sh/(devices-to-allocate|vgpu-node|vgpu-time|bind-time|bind-phase)",
    "runai-gpu-group",
    "ALIYUN_COM_GPU_MEM_(IDX|POD|DEV|ASSIGNED|ASSUME_TIME)",
    r"scheduling\.koordinator\.sh/device-allocated",
    r"tencent\.com/(gpu-assigned|predicate-gpu-idx-[0-9]+)",
)
"""Keys by which HAMi, Volcano, KAI, gpushare, Koordinator and gpu-manager note allocations, and
HAMi's mark to leave a pod alone."""

_QUANTITY: Final = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"


@dataclass(frozen=True, slots=True)
class Scope:
    """Where policies act and who may do what they forbid.

    Attributes:
        usernames: Shoal's own accounts, as Kubernetes names users.
        spared: namespaces that are never managed, whatever their labels say.
        language: of the sentences.
        stamping: what decides on the notes of who created an object.
    """

    usernames: tuple[str, ...]
    spared: tuple[str, ...]
    language: Language = Language.ENGLISH
    stamping: Stamping = DEFAULT_STAMPING

    def managed(self, **channel: Sequence[str]) -> Manifest:
        """Select managed namespaces, all or those of a channel (`In` or `NotIn` its values)."""
        tests: list[Manifest] = [
            {"key": known.MODE, "operator": "In", "values": [known.MANAGE]},
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [*self.spared]},
        ]
        for operator, values in channel.items():
            tests.append({"key": known.CHANNEL, "operator": operator, "values": [*values]})
        return {"matchExpressions": tests}


def gating(names: Names, scope: Scope) -> list[Manifest]:
    """The policies that add the gate, and who created what, with their bindings.

    Kubernetes 1.36 and later. The notes on pods cost no policy of their own.
    """
    gate = f"Object.spec.schedulingGates{{name: {cel.text(known.GATE)}}}"
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": _matches(scope.managed(), "CREATE", "pods"),
        "matchConditions": [
            {"name": "asks-for-accelerators", "expression": cel.asks(names)},
            {"name": "is-not-bound", "expression": f"!{cel.has_node()}"},
        ],
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {
                    "expression": (
                        f"Object{{metadata: Object.metadata{{annotations: "
                        f"{stamps.applied(scope.stamping)}}}, "
                        f"spec: Object.spec{{schedulingGates: [{gate}]}}}}"
                    )
                },
            }
        ],
    }
    return _mutating(known.GATE_POLICY, spec) + _mutating(known.STAMPS_POLICY, _stamping(scope))


def _stamping(scope: Scope) -> Manifest:
    """The policy that notes on owners of pods who created them.

    If it should fail, an owner has no note, and nobody is known to have asked for its pods.
    """
    patch = {"patchType": "JSONPatch", "jsonPatch": {"expression": stamps.patches()}}
    return {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "Never",
        "matchConstraints": _of_owners(scope),
        "variables": stamps.variables(scope.stamping),
        "mutations": [patch],
    }


def _mutating(name: str, spec: Manifest) -> list[Manifest]:
    return [
        _object("MutatingAdmissionPolicy", name, spec),
        _object("MutatingAdmissionPolicyBinding", name, {"policyName": name}),
    ]


def validating(names: Names, scope: Scope) -> list[Manifest]:
    """All validating policies with their bindings.

    A policy about a resource that the cluster does not serve matches nothing.
    """
    policies = [
        _gated(names, scope),
        _guard(scope),
        _form(scope),
        _debug(scope),
        _jobs(scope),
        _stamps(scope),
        _claims(scope),
        _namespaces(scope),
    ]
    return [each for policy in policies for each in policy]


def _gated(names: Names, scope: Scope) -> list[Manifest]:
    """No pod that asks for accelerators passes without the gate, or unswapped on the DRA channel.

    This closes when whatever adds the gate, or swaps, is away or was overtaken by another webhook.
    """
    asked = f"({cel.limits_ask(names)} || ({cel.annotations_ask()} && !{cel.claims_ask()}))"
    return _policy(
        known.GATED_POLICY,
        _matches(scope.managed(), "CREATE", "pods"),
        [
            _held(scope, Rule.NO_NODE_NAME, f"!{cel.has_node()}"),
            # A pod that names its node cannot have a gate; the rule above speaks for it.
            _held(scope, Rule.GATED, f"{cel.has_node()} || {cel.has_gate()}"),
            _held(scope, Rule.SWAPPED, f"{cel.has_node()} || !{_on_dra()} || !{asked}"),
            _held(scope, Rule.STAMPS, stamps.right_on_pods(scope.stamping)),
        ],
        [
            {"name": "asks-for-accelerators", "expression": cel.asks(names)},
            {"name": "is-not-a-kubelets-own", "expression": f"!{cel.is_mirror()}"},
        ],
    )


def _guard(scope: Scope) -> list[Manifest]:
    """Nobody else lifts the gate or changes what a pod was planned with.

    What it says while it runs is no such thing, and is held to its form.
    """
    said = [(rule, key, form) for rule, key, form in forms() if key in keys.SAID_WHILE_RUNNING]
    return _policy(
        known.GUARD_POLICY,
        _matches(scope.managed(), "UPDATE", "pods"),
        [
            _held(scope, Rule.GATE_STAYS, f"!{cel.has_gate('oldObject')} || {cel.has_gate()}"),
            _held(
                scope, Rule.MARKS_STAY, cel.keeps_ours("annotations", but=keys.SAID_WHILE_RUNNING)
            ),
            _held(scope, Rule.MARKS_STAY, cel.keeps_ours("labels")),
            *(_held(scope, rule, _formed(key, form)) for rule, key, form in said),
        ],
        [{"name": "is-not-shoal", "expression": cel.by_others(scope.usernames)}],
    )


def _form(scope: Scope) -> list[Manifest]:
    """What people may write on a pod, and what nobody may."""
    # Controllers hand an owner's annotations on to its pods; what they say is judged elsewhere.
    ours = [*keys.WRITTEN_BY_PEOPLE, keys.CLAIM, *keys.STAMPS]
    rules = [
        _held(
            scope,
            Rule.KNOWN_KEYS,
            _no_key(
                "annotations",
                f"k.startsWith({cel.text(keys.PREFIX)}) && !(k in {cel.listed(ours)})",
            ),
        ),
        _held(scope, Rule.KNOWN_KEYS, _noted_for_a_claim()),
        _held(scope, Rule.NO_LABELS, f"!{cel.carries_ours('labels')}"),
        *(_held(scope, rule, _formed(key, form)) for rule, key, form in forms()),
        _held(
            scope,
            Rule.NO_DEVICE_VARIABLES,
            f"!{cel.any_container(cel.takes_devices_unasked())}",
        ),
        *(
            _held(scope, Rule.NO_FOREIGN_MARKS, _no_key(field, f"k.matches({_foreign()})"))
            for field in ("annotations", "labels")
        ),
        _held(scope, Rule.NO_CLASS_NAMES, f"!{cel.asks_by_class()}"),
        _held(scope, Rule.NO_CLAIM_OF_OTHERS, _own_claim()),
    ]
    matches = _matches(scope.managed(), "CREATE", "pods")
    not_mirror = {"name": "is-not-a-kubelets-own", "expression": f"!{cel.is_mirror()}"}
    return _policy(known.FORM_POLICY, matches, rules, [not_mirror])


def _debug(scope: Scope) -> list[Manifest]:
    """A debug container takes no devices on the side."""
    test = cel.containers("ephemeralContainers", cel.takes_devices_unasked())
    return _policy(
        known.DEBUG_POLICY,
        _matches(scope.managed(), "UPDATE", "pods/ephemeralcontainers"),
        [_held(scope, Rule.NO_DEVICE_VARIABLES, f"!{test}")],
    )


def _jobs(scope: Scope) -> list[Manifest]:
    """What a Job was planned with stays."""
    return _policy(
        known.JOBS_POLICY,
        _matches(scope.managed(), "UPDATE", "jobs", group="batch"),
        [
            _held(scope, Rule.MARKS_STAY, cel.keeps_ours("annotations", keys.STAMPS)),
            _held(scope, Rule.MARKS_STAY, cel.keeps_ours("labels")),
        ],
        [{"name": "is-not-shoal", "expression": cel.by_others(scope.usernames)}],
    )


def _stamps(scope: Scope) -> list[Manifest]:
    """Nobody says himself who created an owner of pods, or changes what is noted of it."""
    tests = [*stamps.right_on_owners(), stamps.copies_stay(scope.stamping)]
    rules = [_held(scope, Rule.STAMPS, each) for each in tests]
    policy, binding = _policy(known.STAMPS_POLICY, _of_owners(scope), rules)
    policy["spec"]["variables"] = stamps.variables(scope.stamping)
    return [policy, binding]


def _of_owners(scope: Scope) -> Manifest:
    return {"resourceRules": stamps.rules(), "namespaceSelector": scope.managed()}


def _claims(scope: Scope) -> list[Manifest]:
    """Nobody else makes a claim under a name that a pod of Shoal waits for."""
    return _policy(
        known.CLAIMS_POLICY,
        _matches({}, "CREATE", "resourceclaims", group="resource.k8s.io"),
        [
            _held(
                scope,
                Rule.CLAIM_NAMES,
                "!has(object.metadata.name) || "
                f"!object.metadata.name.endsWith({cel.text(known.CLAIM_SUFFIX)})",
            )
        ],
        [{"name": "is-not-shoal", "expression": cel.by_others(scope.usernames)}],
    )


def _namespaces(scope: Scope) -> list[Manifest]:
    """A misspelt mode would leave a namespace unmanaged without a word."""
    rules = [
        _held(scope, rule, _one_of("labels", label, values))
        for rule, label, values in (
            (Rule.MODE, known.MODE, (known.OBSERVE, known.MANAGE)),
            (Rule.CHANNEL, known.CHANNEL, (known.DEVICE_PLUGIN, known.DRA)),
        )
    ]
    matches = _matches({}, "CREATE", "namespaces")
    matches["resourceRules"][0]["operations"] = ["CREATE", "UPDATE"]
    carries = {"name": "carries-a-label-of-ours", "expression": cel.carries_ours("labels")}
    return _policy(known.NAMESPACES_POLICY, matches, rules, [carries])


def forms() -> list[tuple[Rule, str, str]]:
    """Rule, key and form (a regular expression) of annotations' values.

    They let everything pass that `objects` reads; the webhook, which reads it, says more of each.
    """
    types = "|".join(each.value for each in WorkloadType)
    return [
        (Rule.MEMORY, keys.MEMORY, _QUANTITY),
        (Rule.COMPUTE, keys.COMPUTE, f"^({keys.PERCENTAGE_FORM})$"),
        (Rule.DEVICES, keys.DEVICES, f"^({keys.COUNT_FORM})$"),
        (Rule.WORDS, keys.ACCELERATORS, f"^({keys.WORDS_FORM})$"),
        (Rule.WORDS, keys.LINKS, f"^({keys.WORDS_FORM})$"),
        (Rule.QUEUE, keys.QUEUE, f"^({keys.QUEUE_FORM})$"),
        (Rule.TYPE, keys.TYPE, f"^({types})$"),
        (Rule.PRIORITY, keys.PRIORITY, f"^({keys.QUEUE_FORM})$"),
        (Rule.RUN, keys.RUN, f"^{DURATION_FORM}$"),
        (Rule.MINIMUM, keys.MINIMUM, f"^({keys.COUNT_FORM})$"),
        (Rule.RECREATE, keys.RECREATE, "^true$"),
        (Rule.CHECKPOINT, keys.CHECKPOINT, f"^{MOMENT_FORM}$"),
    ]


def _formed(key: str, form: str) -> str:
    value = f"object.metadata.annotations[{cel.text(key)}]"
    return (
        f"!has(object.metadata.annotations) || !({cel.text(key)} in object.metadata.annotations)"
        f" || {value}.matches({cel.text(form)})"
    )


def _one_of(field: str, key: str, values: Sequence[str]) -> str:
    where = f"object.metadata.{field}"
    return (
        f"!has({where}) || !({cel.text(key)} in {where}) || "
        f"{where}[{cel.text(key)}] in {cel.listed(values)}"
    )


def _no_key(field: str, test: str) -> str:
    where = f"object.metadata.{field}"
    return f"!has({where}) || !{where}.exists(k, {test})"


def _own_claim() -> str:
    """A claim of Shoal's is named only as the webhook names it: in its entry and its annotation."""
    noted = (
        "has(object.metadata.annotations) && "
        f"{cel.text(keys.CLAIM)} in object.metadata.annotations && "
        f"object.metadata.annotations[{cel.text(keys.CLAIM)}]"
        ".contains('\"' + c.resourceClaimName + '\"')"
    )
    return (
        "!has(object.spec.resourceClaims) || object.spec.resourceClaims.all(c, "
        f"!{cel.claim_is_ours('c')} || (c.name == {cel.text(known.CLAIM_ENTRY)} && {noted}))"
    )


def _noted_for_a_claim() -> str:
    """The webhook's annotation stands only beside the entry that it was written with."""
    return (
        f"!has(object.metadata.annotations) || !({cel.text(keys.CLAIM)} in "
        f"object.metadata.annotations) || ({_on_dra()} && has(object.spec.resourceClaims) && "
        f"object.spec.resourceClaims.exists(c, {cel.claim_is_ours('c')}))"
    )


def _on_dra() -> str:
    """Whether the pod's namespace has the DRA channel."""
    labels = "namespaceObject.metadata.labels"
    return (
        f"(has({labels}) && {cel.text(known.CHANNEL)} in {labels} && "
        f"{labels}[{cel.text(known.CHANNEL)}] == {cel.text(known.DRA)})"
    )


def _foreign() -> str:
    return cel.text("^(" + "|".join(FOREIGN_MARKS) + ")$")


def _matches(namespaces: Manifest, operation: str, resource: str, group: str = "") -> Manifest:
    rule = {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": [operation],
        "resources": [resource],
    }
    return {"resourceRules": [rule]} | ({"namespaceSelector": namespaces} if namespaces else {})


def _held(scope: Scope, rule: Rule, expression: str) -> Manifest:
    text = rule_text(rule, scope.language)
    return {"expression": expression, "message": text, "reason": "Forbidden"}


def _policy(
    name: str, matches: Manifest, rules: Sequence[Manifest], conditions: Sequence[Manifest] = ()
) -> list[Manifest]:
    spec: Manifest = {
        "failurePolicy": "Fail",
        "matchConstraints": matches,
        "validations": [*rules],
    }
    if conditions:
        spec["matchConditions"] = [*conditions]
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return [
        _object("ValidatingAdmissionPolicy", name, spec),
        _object("ValidatingAdmissionPolicyBinding", name, binding),
    ]


def _object(kind: str, name: str, spec: Mapping[str, Any]) -> Manifest:
    return {
        "apiVersion": API,
        "kind": kind,
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "shoal"}},
        "spec": dict(spec),
    }
