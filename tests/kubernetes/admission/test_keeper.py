"""The webhook's certificate is renewed step by step, by any replica, without a gap."""

import ssl
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from shoal.kubernetes.admission import keeper as kept
from shoal.kubernetes.admission.certificates import (
    Pair,
    first_certificate,
    issue,
    server_context,
    service_names,
    use,
)
from shoal.kubernetes.admission.keeper import SECRET, Keeper
from shoal.kubernetes.admission.names import CONFIGURATION
from shoal.kubernetes.api.client import Client
from shoal.kubernetes.api.errors import KubernetesError
from tests.kubernetes.fake_api import Refusal, in_loop, transport_to
from tests.kubernetes.strategic import StrategicApi

NAMES = service_names("shoal-webhook", "shoal")
DAY = timedelta(days=1)


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def configuration() -> dict[str, Any]:
    hooks = [
        {"name": name, "clientConfig": {"service": {"name": "s"}}} for name in ("a.b.c", "d.e.f")
    ]
    return {"metadata": {"name": CONFIGURATION}, "webhooks": hooks}


def secret_of(api: StrategicApi) -> dict[str, bytes]:
    data = api.objects["secrets"]["shoal", SECRET]["data"]
    return {key: b64decode(value) for key, value in data.items()}


def bundles(api: StrategicApi) -> set[bytes]:
    found = api.objects["mutatingwebhookconfigurations"]["", CONFIGURATION]
    assert all(each["clientConfig"]["service"] == {"name": "s"} for each in found["webhooks"])
    return {b64decode(each["clientConfig"].get("caBundle", "")) for each in found["webhooks"]}


def trusts(bundle: bytes, pair: Pair, now: datetime) -> bool:
    """Whether a certificate of the bundle signed the pair's."""
    served = x509.load_pem_x509_certificate(pair.certificate)
    for authority in x509.load_pem_x509_certificates(bundle):
        if authority.not_valid_before_utc <= now <= authority.not_valid_after_utc:
            try:
                served.verify_directly_issued_by(authority)
            except Exception:  # noqa: BLE001, S112  (whatever it is, it did not sign)
                continue
            return True
    return False


@in_loop
async def test_the_first_step_makes_what_is_missing_and_tells_the_api_server() -> None:
    async with StrategicApi() as api, transport_to(api) as transport:
        api.put("mutatingwebhookconfigurations", configuration())
        keeper = Keeper(Client(transport), "shoal", NAMES, clock=Clock())
        pair = await keeper.step()
        assert secret_of(api)["tls.crt"] == pair.certificate
        assert await keeper.step() == pair
        (bundle,) = bundles(api)
        assert trusts(bundle, pair, Clock().now)
        use(server_context(), pair)


@in_loop
async def test_it_works_before_the_webhook_is_installed() -> None:
    async with StrategicApi() as api, transport_to(api) as transport:
        keeper = Keeper(Client(transport), "shoal", NAMES, clock=Clock())
        pair = await keeper.step()
        api.put("mutatingwebhookconfigurations", configuration())
        assert await keeper.step() == pair
        assert bundles(api) == {secret_of(api)["ca.crt"]}


@in_loop
async def test_at_every_moment_of_a_renewal_what_is_served_is_trusted() -> None:
    clock = Clock()
    async with StrategicApi() as api, transport_to(api) as transport:
        api.put("mutatingwebhookconfigurations", configuration())
        keepers = [Keeper(Client(transport), "shoal", NAMES, clock=clock) for _ in range(2)]
        serving = {each: await each.step() for each in keepers}
        seen = set(serving.values())
        for _ in range(300):
            clock.now += DAY
            for each in keepers:
                served = await each.step()
                for bundle in bundles(api):
                    assert trusts(bundle, served, clock.now)
                    # The other replica has not stepped yet; what it serves is trusted too.
                    assert all(trusts(bundle, other, clock.now) for other in serving.values())
                serving[each] = served
                seen.add(served)
            assert len(secret_of(api)["ca.crt"].split(b"-----BEGIN")) <= 3
        assert len(seen) == 1 + 300 // 60


@in_loop
async def test_of_two_replicas_one_renews_and_the_other_follows() -> None:
    clock = Clock()
    async with StrategicApi() as api, transport_to(api) as transport:
        api.put("mutatingwebhookconfigurations", configuration())
        keeper = Keeper(Client(transport), "shoal", NAMES, clock=clock)
        old = await keeper.step()
        await keeper.step()
        clock.now += 70 * DAY
        api.refuse("PATCH", Refusal(409, "the object has been modified", "Conflict"))
        assert await keeper.step() == old
        assert "next.crt" not in secret_of(api)
        await keeper.step()
        assert "next.crt" in secret_of(api)
        assert await keeper.step() != old
        assert "next.crt" not in secret_of(api)


@in_loop
async def test_a_secret_that_cannot_be_read_is_replaced() -> None:
    async with StrategicApi() as api, transport_to(api) as transport:
        body = {"metadata": {"name": SECRET, "namespace": "shoal"}, "data": {"tls.crt": "!!"}}
        api.put("secrets", body)
        keeper = Keeper(Client(transport), "shoal", NAMES, clock=Clock())
        use(server_context(), await keeper.step())


@in_loop
async def test_a_replica_goes_on_serving_while_the_api_server_is_away() -> None:
    served: list[Pair] = []
    pauses: list[float] = []

    class Enough(Exception):
        pass

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise Enough

    async with StrategicApi() as api, transport_to(api) as transport:
        keeper = Keeper(Client(transport), "shoal", NAMES, clock=Clock(), sleep=sleep)
        api.refuse("GET", Refusal(403, "no", "Forbidden"))
        with pytest.raises(Enough):
            await keeper.run(served.append)
    assert len(served) == 1
    assert pauses == [kept.PERIOD_S] * 3


@in_loop
async def test_a_step_that_cannot_be_made_says_so() -> None:
    async with StrategicApi() as api, transport_to(api) as transport:
        api.refuse("GET", Refusal(403, "no", "Forbidden"))
        with pytest.raises(KubernetesError):
            await Keeper(Client(transport), "shoal", NAMES).step()


def test_certificates_are_for_the_names_that_api_servers_call() -> None:
    pair, authority = issue((*NAMES, "127.0.0.1"), Clock().now)
    read = x509.load_pem_x509_certificate(pair.certificate)
    names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        "shoal-webhook.shoal.svc",
        "shoal-webhook.shoal.svc.cluster.local",
    ]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert Clock().now + 59 * DAY < pair.renew_at < Clock().now + 61 * DAY
    assert first_certificate(authority + pair.certificate) == authority
    assert first_certificate(b"") == b""


def test_a_key_of_another_certificate_is_refused() -> None:
    one, other = (issue(NAMES, Clock().now)[0] for _ in range(2))
    with pytest.raises(ssl.SSLError):
        use(server_context(), Pair(one.certificate, other.key))
