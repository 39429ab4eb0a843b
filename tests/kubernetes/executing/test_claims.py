"""Claims: their names, their requests, and who sees which device."""

import re

from hypothesis import given
from hypothesis import strategies as st

from shoal.catalog.load import load_catalog
from shoal.kubernetes.executing.claims import (
    ClaimRequest,
    Pin,
    claim_body,
    claim_name,
    class_for,
    is_claim_of,
    requests_of,
    uses_of,
)
from shoal.kubernetes.wire.meta import ObjectMeta, OwnerReference
from shoal.kubernetes.wire.resource import DeviceClass, DeviceClassSpec, ResourceClaim
from shoal.objects.devices import Span

DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def test_K09_names_are_short_legal_and_say_whose_they_are() -> None:
    for name in ("p", "a" * 253, "x" * 41 + "--..-", "web-7d9-", "a." * 100 + "b"):
        said = claim_name(name, "uid")
        assert len(said) <= 63
        assert DNS.fullmatch(said), said
        assert said.endswith(".shoal.dev")
        assert said.startswith(name[:10].rstrip("-."))


def test_K09_b_equal_beginnings_give_different_names() -> None:
    one, other = ("j" * 60 + end for end in ("-a", "-b"))
    assert claim_name(one, "uid") != claim_name(other, "uid")
    assert claim_name(one, "uid") != claim_name(one, "other uid")
    assert claim_name(one, "uid") == claim_name(one, "uid")


@given(st.from_regex(DNS, fullmatch=True), st.text(max_size=40))
def test_K09_any_legal_name_gives_a_legal_one(name: str, distinct: str) -> None:
    said = claim_name(name, distinct)
    assert len(said) <= 63
    assert DNS.fullmatch(said)


def test_one_container_uses_the_whole_claim() -> None:
    (request,) = requests_of([Span("main", 0, 4)])
    assert request == ClaimRequest("devices-0", 0, 4)
    assert uses_of(Span("main", 0, 4), (request,)) == [{"name": "shoal"}]


def test_S06_containers_see_their_own_devices_only() -> None:
    spans = [Span("i", 0, 2), Span("a", 0, 1), Span("b", 1, 3)]
    requests = requests_of(spans)
    assert [(r.start, r.count) for r in requests] == [(0, 1), (1, 1), (2, 2)]
    assert [[use["request"] for use in uses_of(span, requests)] for span in spans] == [
        ["devices-0", "devices-1"],
        ["devices-0"],
        ["devices-1", "devices-2"],
    ]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), min_size=1, max_size=5))
def test_requests_cut_the_devices_so_that_every_span_is_whole_requests(
    drawn: list[tuple[int, int]],
) -> None:
    spans = [Span(f"c{n}", start, count) for n, (start, count) in enumerate(drawn)]
    requests = requests_of(spans)
    for span in spans:
        mine = [r for r in requests if span.start <= r.start < span.start + span.count]
        assert sum(r.count for r in mine) == span.count
    assert len({r.name for r in requests}) == len(requests)


def test_a_claim_is_pinned_owned_and_shared_as_asked() -> None:
    meta = ObjectMeta(name="p", namespace="ns", uid="u")
    pin = Pin("gpu.nvidia.com", "uuid", ("GPU-a", "GPU-b", "GPU-c"))
    requests = requests_of([Span("a", 0, 1), Span("b", 1, 2)])
    body = claim_body(
        "n.shoal.dev", meta, requests, "gpu.nvidia.com", pin=pin, capacity={"memory": "5Gi"}
    )
    one, two = (each["exactly"] for each in body["spec"]["devices"]["requests"])
    assert one["count"] == 1
    assert one["selectors"][0]["cel"]["expression"] == (
        'device.attributes["gpu.nvidia.com"].uuid in ["GPU-a"]'
    )
    assert two["selectors"][0]["cel"]["expression"].endswith('in ["GPU-b", "GPU-c"]')
    assert two["capacity"] == {"requests": {"memory": "5Gi"}}
    (owner,) = body["metadata"]["ownerReferences"]
    claim = ResourceClaim(
        ObjectMeta(owner_references=(OwnerReference("v1", owner["kind"], "p", owner["uid"]),))
    )
    assert is_claim_of(claim, "u")
    assert not is_claim_of(claim, "another")


def test_without_a_pin_kube_scheduler_chooses() -> None:
    meta = ObjectMeta(name="p", namespace="ns", uid="u")
    body = claim_body("n", meta, requests_of([Span("a", 0, 1)]), "c")
    assert "selectors" not in body["spec"]["devices"]["requests"][0]["exactly"]


def test_a_class_that_names_the_resource_wins_over_the_driver() -> None:
    catalog = load_catalog()
    plain = [DeviceClass(ObjectMeta(name=name)) for name in ("gpu.nvidia.com", "net.example")]
    named = DeviceClass(
        ObjectMeta(name="cards"), DeviceClassSpec(extended_resource_name="nvidia.com/gpu")
    )
    assert class_for(plain, catalog, "nvidia.com/gpu", "nvidia") == "gpu.nvidia.com"
    assert class_for([*plain, named], catalog, "nvidia.com/gpu", "nvidia") == "cards"
    assert class_for(plain, catalog, "amd.com/gpu", "amd") is None
    assert class_for(plain, catalog, "", "") == "gpu.nvidia.com"
