"""Who created an object and for whom, noted on it where nobody can write it himself.

On its creation an object's stamps say who asks the API server. A controller's also say for which
owner. They stay, but for one thing: whoever changes what an owner asks for (its `spec`), and is no
controller, is from then on who asked for it; so nobody puts words into another's mouth by changing
his Deployment. `askers` reads them.

Policies write them from Kubernetes 1.36 on, the webhook before that. On owners both only add what
others may have dropped, and a policy of validation refuses what is not right in the end.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from shoal.kubernetes.admission import expressions as cel
from shoal.kubernetes.admission.names import STAMPS_OF_DEPLOYMENTS
from shoal.kubernetes.watching.controllers import KUBERNETES_OWN, Controllers
from shoal.kubernetes.watching.owners import DEPLOYMENT, OWNER_KINDS
from shoal.kubernetes.wire.meta import EMPTY, ObjectMeta, Wire
from shoal.objects.annotations import GROUPS, OWNER, STAMPS, USER

Manifest = dict[str, Any]

_USER: Final = "request.userInfo.username"
_WORDS: Final = {USER: "user", GROUPS: "groups", OWNER: "owner"}
"""What the variables of policies are called by."""


@dataclass(frozen=True)
class Stamping:
    """What decides on stamps: whose objects are others', and the groups that are worth a note."""

    controllers: Controllers = KUBERNETES_OWN
    groups: tuple[str, ...] = ()


DEFAULT_STAMPING: Final = Stamping()

# In policies ------------------------------------------------------------------------------------


def on_creation(stamping: Stamping) -> dict[str, str]:
    """What each stamp of a new object is, as CEL; empty strings: none."""
    groups = (
        "(has(request.userInfo.groups) ? request.userInfo.groups.filter(g, g in "
        f"{cel.listed(stamping.groups)}).join(' ') : '')"
        if stamping.groups
        else "''"
    )
    references = "object.metadata.ownerReferences"
    controls = "has(r.controller) && r.controller"
    owner = (
        f"({_by_controllers(stamping)} && has({references}) && {references}.exists(r, {controls})"
        f" ? string({references}.filter(r, {controls})[0].uid) : '')"
    )
    return {USER: _USER, GROUPS: groups, OWNER: owner}


def applied(stamping: Stamping) -> str:
    """The annotations of a new pod in an apply configuration, in the place of any of these keys."""
    entries = []
    for key, value in on_creation(stamping).items():
        if key == USER:
            entries.append(f"{cel.text(key)}: {value}")
        else:
            there = _carries("object", cel.text(key))
            wanted = f"{value} != '' || {there} ? optional.of({value}) : optional.none()"
            entries.append(f"?{cel.text(key)}: {wanted}")
    return "{" + ", ".join(entries) + "}"


def right_on_pods(stamping: Stamping) -> str:
    """Whether a new pod carries no stamp but the right ones."""
    tests = [
        f"(!{_carries('object', cel.text(key))} || "
        f"object.metadata.annotations[{cel.text(key)}] == {value})"
        for key, value in on_creation(stamping).items()
    ]
    return " && ".join(tests)


def variables(stamping: Stamping) -> list[Manifest]:
    """Variables of a policy about owners: what each stamp `_is`, and what it `_should` be."""
    changes = f"({_spec_changes()} && !{_by_controllers(stamping)})"
    found = [{"name": "asks", "expression": f"request.operation == 'CREATE' || {changes}"}]
    for key, value in on_creation(stamping).items():
        word = _WORDS[key]
        on_deployments = cel.text(STAMPS_OF_DEPLOYMENTS[key])
        anew = "request.operation == 'CREATE'" if key == OWNER else "variables.asks"
        deployment = f"request.resource.resource == '{DEPLOYMENT.plural}'"
        named = {
            f"{word}_key": f"{deployment} ? {on_deployments} : {cel.text(key)}",
            f"{word}_is": _value("object", f"variables.{word}_key"),
            f"{word}_should": (
                f"{anew} ? {value} : {_value('oldObject', f'variables.{word}_key')}"
            ),
        }
        found += [{"name": name, "expression": each} for name, each in named.items()]
    return found


def patches() -> str:
    """The JSON patch that puts an owner's stamps right, with the variables of `variables`."""
    there = "has(object.metadata.annotations)"
    parts = [f"({there} ? [] : [{_added(cel.text('/metadata/annotations'), '{}')}])"]
    for word in _WORDS.values():
        path = f"'/metadata/annotations/' + jsonpatch.escapeKey(variables.{word}_key)"
        add = _added(path, f"variables.{word}_should")
        parts.append(f"(variables.{word}_is == variables.{word}_should ? [] : [{add}])")
    return " + ".join(parts)


def right_on_owners() -> list[str]:
    """Whether each stamp of an owner is right, or a new owner has none."""
    return [
        f"variables.{word}_is == variables.{word}_should || "
        f"(request.operation == 'CREATE' && variables.{word}_is == '')"
        for word in _WORDS.values()
    ]


def copies_stay(stamping: Stamping) -> str:
    """Whether nobody but its controller changes of which Deployment's asker a ReplicaSet is."""
    return (
        "request.operation == 'CREATE' || request.resource.resource != 'replicasets' || "
        f"{_by_controllers(stamping)} || ({_kept(STAMPS_OF_DEPLOYMENTS.values())})"
    )


def concerns_stamps() -> str:
    """Whether the stamps of an owner may have to be put right, as a condition of a webhook."""
    kept = _kept([*STAMPS, *STAMPS_OF_DEPLOYMENTS.values()])
    return f"request.operation == 'CREATE' || {_spec_changes()} || !({kept})"


def rules() -> list[Manifest]:
    """What is stamped beside pods, and when, as policies and webhooks name it."""
    groups: dict[str, list[str]] = {}
    for each in OWNER_KINDS:
        groups.setdefault(each.group, []).append(each.plural)
    return [
        {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE"],
            "resources": resources,
        }
        for group, resources in groups.items()
    ]


def _by_controllers(stamping: Stamping) -> str:
    known = stamping.controllers
    tests = [f"{_USER} in {cel.listed(known.names)}"]
    tests += [f"{_USER}.startsWith({cel.text(each)})" for each in known.prefixes]
    return cel.any_of(*tests)


def _carries(variable: str, key: str) -> str:
    where = f"{variable}.metadata.annotations"
    return f"(has({where}) && {key} in {where})"


def _value(variable: str, key: str) -> str:
    return f"{_carries(variable, key)} ? string({variable}.metadata.annotations[{key}]) : ''"


def _kept(keys: Iterable[str]) -> str:
    """Whether an update leaves annotations as they were."""
    return " && ".join(
        f"({_value('object', cel.text(key))}) == ({_value('oldObject', cel.text(key))})"
        for key in keys
    )


def _spec_changes() -> str:
    """Whether an update changes what an object asks for."""
    return (
        "(request.operation == 'UPDATE' && (has(object.spec) != has(oldObject.spec) || "
        "(has(object.spec) && object.spec != oldObject.spec)))"
    )


def _added(path: str, value: str) -> str:
    return f'JSONPatch{{op: "add", path: {path}, value: {value}}}'


# In the webhook -----------------------------------------------------------------------------------


class UserInfo(msgspec.Struct, frozen=True):
    """Who asks the API server."""

    username: str = ""
    groups: tuple[str, ...] = ()


class _Resource(msgspec.Struct, frozen=True):
    resource: str = ""


class _Owner(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = EMPTY


class OwnerQuestion(msgspec.Struct, frozen=True, rename="camel"):
    """The request of an AdmissionReview about an owner of pods."""

    uid: str = ""
    operation: str = ""
    resource: _Resource = _Resource()
    user_info: UserInfo = UserInfo()
    object: _Owner = _Owner()
    old_object: _Owner | None = None


class _Review(msgspec.Struct, frozen=True):
    request: OwnerQuestion


_review = msgspec.json.Decoder(_Review)


def read_owner_question(body: bytes) -> OwnerQuestion:
    """The question in a request's body. Raises ValueError for anything else."""
    return _review.decode(body).request


def new_stamps(who: UserInfo, meta: ObjectMeta, stamping: Stamping) -> dict[str, str]:
    """What each stamp of a new object is; see `on_creation`."""
    controller = meta.controller if stamping.controllers.include(who.username) else None
    return {
        USER: who.username,
        GROUPS: " ".join(each for each in who.groups if each in stamping.groups),
        OWNER: controller.uid if controller is not None else "",
    }


def owner_stamps(question: OwnerQuestion, stamping: Stamping) -> dict[str, str]:
    """The annotations that an owner's stamps lack to be right; see `variables` and `patches`."""
    meta, old = question.object.metadata, question.old_object
    should = new_stamps(question.user_info, meta, stamping)
    deployment = question.resource.resource == DEPLOYMENT.plural
    keys = STAMPS_OF_DEPLOYMENTS if deployment else {key: key for key in STAMPS}
    if question.operation != "CREATE" and old is not None:
        changes = _same(question.object.spec) != _same(old.spec)
        anew = changes and not stamping.controllers.include(question.user_info.username)
        for key in STAMPS:
            if key == OWNER or not anew:
                should[key] = old.metadata.annotations.get(keys[key], "")
    return missing(meta.annotations, {keys[key]: value for key, value in should.items()})


def missing(annotations: Mapping[str, str], stamps: Mapping[str, str]) -> dict[str, str]:
    """The stamps that annotations do not have as they are."""
    return {key: value for key, value in stamps.items() if annotations.get(key, "") != value}


def _same(spec: msgspec.Raw) -> Any:
    return msgspec.json.decode(spec) if spec else None
