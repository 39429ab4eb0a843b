"""The objects that are installed: complete, in our words, and generated from the catalogue."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.catalog.load import load_catalog
from shoal.catalog.names import Place
from shoal.kubernetes.admission import expressions as cel
from shoal.kubernetes.admission import names as known
from shoal.kubernetes.admission.installation import (
    NAMES,
    RIGHTS,
    Accounts,
    install,
    installation,
    uninstall,
)
from shoal.kubernetes.admission.kinds import INSTALLED
from shoal.kubernetes.admission.policies import FOREIGN_MARKS, forms
from shoal.kubernetes.admission.webhooks import Target
from shoal.kubernetes.api.client import Client
from shoal.kubernetes.watching.controllers import Controllers
from shoal.kubernetes.watching.owners import OWNER_KINDS
from shoal.model.queue import Priority, Queue, QueueTree
from shoal.objects import annotations
from shoal.objects.annotations import WRITTEN_BY_PEOPLE
from shoal.texts.admission import Rule, rule_text
from shoal.texts.language import Language
from tests.kubernetes.fake_api import in_loop, transport_to
from tests.kubernetes.strategic import StrategicApi

CATALOG = load_catalog()
ACCOUNTS = Accounts()


def objects(
    version: tuple[int, int] = (1, 37), language: Language = Language.ENGLISH
) -> list[dict[str, Any]]:
    target = Target(authority=b"CA")
    return installation(version, CATALOG.names, ACCOUNTS, target, language=language)


def of_kind(kind: str, version: tuple[int, int] = (1, 37)) -> list[dict[str, Any]]:
    return [each for each in objects(version) if each["kind"] == kind]


def test_from_1_36_on_a_policy_gates_and_before_it_the_webhook() -> None:
    for version in ((1, 36), (1, 37), (2, 0)):
        policies = of_kind("MutatingAdmissionPolicy", version)
        assert [each["metadata"]["name"] for each in policies] == [
            known.GATE_POLICY,
            known.STAMPS_POLICY,
        ]
        (hooks,) = of_kind("MutatingWebhookConfiguration", version)
        assert [each["name"] for each in hooks["webhooks"]] == [
            "dra.shoal.dev",
            "annotations.shoal.dev",
        ]
    for version in ((1, 32), (1, 35)):
        assert of_kind("MutatingAdmissionPolicy", version) == []
        (hooks,) = of_kind("MutatingWebhookConfiguration", version)
        assert [each["name"] for each in hooks["webhooks"]] == [
            *("dra.shoal.dev", "gate.shoal.dev", "owners.shoal.dev")
        ]


def test_O05_nothing_but_form_of_namespaces_and_claims_reaches_outside_managed_namespaces() -> None:
    managed = {"key": known.MODE, "operator": "In", "values": [known.MANAGE]}
    spared = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["shoal", "kube-system", "kube-node-lease", "kube-public"],
    }
    anywhere = set()
    for each in objects():
        if each["kind"].endswith("Binding"):
            continue
        spec = each.get("spec", {})
        selectors = [hook["namespaceSelector"] for hook in each.get("webhooks", [])]
        if "matchConstraints" in spec:
            selectors = [spec["matchConstraints"].get("namespaceSelector")]
        for selector in selectors:
            if selector is None:
                anywhere.add(each["metadata"]["name"])
                continue
            assert managed in selector["matchExpressions"]
            assert spared in selector["matchExpressions"]
    assert anywhere == {known.NAMESPACES_POLICY, known.CLAIMS_POLICY}


def test_O05_a_webhook_that_is_away_blocks_nothing_by_itself() -> None:
    for version in ((1, 35), (1, 37)):
        (hooks,) = of_kind("MutatingWebhookConfiguration", version)
        for each in hooks["webhooks"]:
            assert each["failurePolicy"] == "Ignore"
            assert each["reinvocationPolicy"] == "Never"
            assert each["sideEffects"] == "None"
            assert each["timeoutSeconds"] == 5
            assert each["matchConditions"]
            pods = each["rules"][0]["resources"] == ["pods"]
            assert each["rules"][0]["operations"] == (["CREATE"] if pods else ["CREATE", "UPDATE"])


def test_a_pod_that_only_carries_who_created_it_is_no_business_of_the_webhook() -> None:
    (hooks,) = of_kind("MutatingWebhookConfiguration")
    (condition,) = hooks["webhooks"][1]["matchConditions"]
    but = json.dumps(list(annotations.STAMPS))
    assert f'k.startsWith("shoal.dev/") && !(k in {but})' in condition["expression"]


def test_who_created_a_pod_is_noted_by_the_policy_that_gates_it() -> None:
    gate, owners = of_kind("MutatingAdmissionPolicy")
    (mutation,) = gate["spec"]["mutations"]
    expression = mutation["applyConfiguration"]["expression"]
    assert '"shoal.dev/user": request.userInfo.username' in expression
    # A pod that brings the gate is noted as well.
    names = [each["name"] for each in gate["spec"]["matchConditions"]]
    assert names == ["asks-for-accelerators", "is-not-bound"]
    assert owners["spec"]["failurePolicy"] == "Ignore"


def test_policies_know_the_groups_that_priorities_are_kept_for_and_the_controllers() -> None:
    urgent = Priority("urgent", 1, ("group:leads", "user:ann", "group:oncall"))
    tree = QueueTree((Queue("root", priorities=(urgent,)), Queue("work", "root")))
    accounts = Accounts(controllers=Controllers(("jobset-system:manager", "lws-system")))
    made = installation((1, 37), CATALOG.names, accounts, Target(), tree=tree)
    for name in (known.GATE_POLICY, known.STAMPS_POLICY):
        for each in made:
            if each["metadata"]["name"] == name and "policyName" not in each["spec"]:
                text = json.dumps(each).replace('\\"', '"')
                assert '["leads", "oncall"]' in text
                assert '"system:serviceaccount:jobset-system:manager"' in text
                assert 'startsWith("system:serviceaccount:lws-system:")' in text
                assert 'startsWith("system:serviceaccount:kube-system:")' in text


def test_everything_that_is_stamped_is_checked_and_can_be_read_by_the_scheduler() -> None:
    mutating, validating = (
        next(each for each in of_kind(kind) if each["metadata"]["name"] == known.STAMPS_POLICY)
        for kind in ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
    )
    assert mutating["spec"]["matchConstraints"] == validating["spec"]["matchConstraints"]
    assert mutating["spec"]["variables"] == validating["spec"]["variables"]
    resources = {
        (group, resource)
        for rule in mutating["spec"]["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert resources == {(each.group, each.plural) for each in OWNER_KINDS}
    may = {(r.group, r.resource) for r in RIGHTS if r.process == "scheduler"}
    assert resources <= may


def test_every_policy_is_bound_and_says_why_it_refuses() -> None:
    for kind in ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"):
        names = [each["metadata"]["name"] for each in of_kind(kind)]
        bound = {each["spec"]["policyName"] for each in of_kind(f"{kind}Binding")}
        assert set(names) == bound
    messages = {
        rule["message"]
        for policy in of_kind("ValidatingAdmissionPolicy")
        for rule in policy["spec"]["validations"]
    }
    assert messages == {rule_text(rule) for rule in Rule}


def test_sentences_are_in_the_language_of_the_cluster() -> None:
    chinese = json.dumps(objects(language=Language.CHINESE), ensure_ascii=False)
    assert rule_text(Rule.GATE_STAYS, Language.CHINESE) in chinese
    assert rule_text(Rule.GATE_STAYS) not in chinese


def test_shoals_accounts_and_no_others_may_pass_the_guard() -> None:
    (guard,) = [
        each
        for each in of_kind("ValidatingAdmissionPolicy")
        if each["metadata"]["name"] == known.GUARD_POLICY
    ]
    (condition,) = guard["spec"]["matchConditions"]
    assert condition["expression"] == (
        '!(request.userInfo.username in ["system:serviceaccount:shoal:shoal-scheduler"])'
    )


@pytest.mark.parametrize(
    ("name", "asks"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/mig-1g.10gb", True),
        ("nvidia.com/gpumem", True),
        ("huawei.com/Ascend910-8c", True),
        ("volcano.sh/vgpu-number", True),
        ("cpu", False),
        ("memory", False),
        ("example.com/nvidia.com-gpu", False),
        ("gpu-fraction", False),
        ("xnvidia.com/gpu", False),
    ],
)
def test_the_api_server_knows_the_catalogues_names(name: str, asks: bool) -> None:
    expression = cel.device_name(CATALOG.names, "k")
    exact = json.loads(re.search(r"k in (\[.*?\])", expression)[1])  # type: ignore[index]
    pattern = json.loads(re.search(r"k\.matches\((\".*\")\)", expression)[1])  # type: ignore[index]
    said = name in exact or re.search(pattern, name) is not None
    found = CATALOG.names.find(name)
    assert said == asks
    assert asks == (found is not None and found[0].place is Place.LIMITS)


FORMS = {key: form for _, key, form in forms()}
LIKELY = {
    annotations.MEMORY: r"[+]?[0-9]{0,4}(\.[0-9]{0,2})?([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9])?",
    annotations.COMPUTE: "[0-9]{1,3}",
    annotations.DEVICES: "[0-9]{1,7}",
    annotations.ACCELERATORS: "[A-Za-z0-9._|-]{1,12}",
    annotations.LINKS: "[a-z|]{1,8}",
    annotations.QUEUE: "[a-z0-9-]{1,64}",
    annotations.PRIORITY: "[a-z0-9-]{1,64}",
    annotations.RUN: "[0-9]{1,8}[dhms]([0-9]{1,2}[hms]){0,2}",
    annotations.MINIMUM: "[0-9]{1,7}",
    annotations.RECREATE: "true|false|yes",
    annotations.CHECKPOINT: (
        "[12][0-9]{3}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-6][0-9]:[0-6][0-9]([.][0-9]{1,10})?"
        "(Z|[+-][0-2][0-9]:[0-6][0-9])?"
    ),
    annotations.TYPE: "training|inference|notebook|batch|Batch",
}


@given(st.data())
def test_policies_let_everything_pass_that_can_be_read(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(LIKELY)))
    text = data.draw(st.from_regex(LIKELY[key], fullmatch=True))
    said = annotations.read_annotations({key: text}, queues=(text,))
    if isinstance(said, annotations.Annotations) and key != annotations.QUEUE:
        assert re.search(FORMS[key], text), (key, text)
    if key == annotations.QUEUE and re.fullmatch(annotations.QUEUE_FORM, text):
        assert re.search(FORMS[key], text)


def test_every_form_is_of_an_annotation_that_people_write() -> None:
    assert set(FORMS) == set(LIKELY) == set(WRITTEN_BY_PEOPLE) - {annotations.ISOLATION}


@pytest.mark.parametrize(
    "key",
    [
        "hami.io/vgpu-devices-to-allocate",
        "hami.io/Ascend910B-devices-to-allocate",
        "hami.io/webhook",
        "hami.io/bind-phase",
        "volcano.sh/devices-to-allocate",
        "runai-gpu-group",
        "ALIYUN_COM_GPU_MEM_IDX",
    ],
)
def test_K03_d_marks_of_other_schedulers_are_known(key: str) -> None:
    assert re.fullmatch("|".join(FOREIGN_MARKS), key)


@pytest.mark.parametrize("key", ["hami.io/node-scheduler-policy", "kai.scheduler/queue", "app"])
def test_hints_of_other_systems_are_left_alone(key: str) -> None:
    assert not re.fullmatch("|".join(FOREIGN_MARKS), key)


def test_installed_names_are_all_that_uninstalling_looks_for() -> None:
    kinds = {kind.name for kind in INSTALLED}
    for version in ((1, 35), (1, 37)):
        for each in objects(version):
            assert each["metadata"]["name"] in NAMES
            assert each["kind"] in kinds


def test_a_service_or_a_url_is_called_and_trusted_by_the_authority() -> None:
    (hooks,) = of_kind("MutatingWebhookConfiguration")
    service = hooks["webhooks"][0]["clientConfig"]
    assert service == {
        "caBundle": "Q0E=",
        "service": {
            "namespace": "shoal",
            "name": "shoal-webhook",
            "port": 443,
            "path": "/mutate/dra",
        },
    }
    assert Target(url="https://127.0.0.1:1").client_config("/x") == {"url": "https://127.0.0.1:1/x"}


def test_rights_name_what_is_used_and_why() -> None:
    assert {right.process for right in RIGHTS} == {"webhook", "scheduler", "release"}
    for right in RIGHTS:
        assert right.verbs
        assert right.reason
        assert "update" not in right.verbs  # nothing is ever written with PUT
        assert right.process != "webhook" or right.resource != "pods"


def test_every_right_is_documented(repository: Path) -> None:
    page = (repository / "docs" / "kubernetes.md").read_text()
    for right in RIGHTS:
        start = f"| {right.process} | `{right.resource}` | {', '.join(right.verbs)} | "
        assert start in page
        assert f" | {right.reason} |" in page


def test_every_annotation_is_documented(repository: Path) -> None:
    page = (repository / "docs" / "kubernetes.md").read_text()
    for key in WRITTEN_BY_PEOPLE:
        assert f"\n| `{key}` | " in page


@in_loop
async def test_installing_twice_and_uninstalling_twice_is_harmless() -> None:
    class Applies(StrategicApi):
        """Server-side apply of whole documents."""

        def _carry_out(self, verb: str, request: Any, body: bytes) -> Any:
            if verb == "PATCH":
                self.put(request.path.split("/")[-2], json.loads(body))
                return super()._carry_out("GET", request, b"")
            return super()._carry_out(verb, request, body)

    async with Applies() as api, transport_to(api) as transport:
        client = Client(transport)
        for _ in range(2):
            await install(client, objects())
        held = sum(len(each) for each in api.objects.values())
        assert held == len(objects()) == 21
        assert await uninstall(client) == 21
        assert await uninstall(client) == 0
