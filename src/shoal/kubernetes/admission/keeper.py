"""Keeps the webhook's certificate alive: a Secret is the truth, and any replica may move it on.

The Secret holds what is served (`tls.crt`, `tls.key`), what signed it and what will (`ca.crt`, the
newest first), and while a renewal is under way what will be served (`next.crt`, `next.key`). A
renewal goes in steps, each safe to repeat and to break off:

1. a new pair and its authority go into the Secret, beside the old ones;
2. the webhook configuration is told of both authorities;
3. a step later, when API servers have heard of it, the new pair is served.

Every write of the Secret carries the version that it was decided on, so of two replicas one wins
and the other reads again.
"""

import asyncio
import contextlib
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from shoal.kubernetes.admission.certificates import LIFETIME, Pair, first_certificate, issue
from shoal.kubernetes.admission.kinds import SECRETS, WEBHOOKS, Secret
from shoal.kubernetes.admission.names import CONFIGURATION
from shoal.kubernetes.api.client import Client, PatchForm
from shoal.kubernetes.api.errors import (
    AlreadyExistsError,
    ConflictError,
    KubernetesError,
    NotFoundError,
)

SECRET: Final = "shoal-webhook-tls"  # noqa: S105  (its name)
PERIOD_S: Final = 30.0

_log = structlog.get_logger(__name__)

_SERVED: Final = ("tls.crt", "tls.key")
_NEXT: Final = ("next.crt", "next.key")
_AUTHORITIES: Final = "ca.crt"


class Keeper:
    """One replica's view of the certificate. `names` are those that the API server calls."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        names: Sequence[str],
        *,
        lifetime: timedelta = LIFETIME,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Nothing is read or written before the first step."""
        self._client = client
        self._namespace = namespace
        self._names = tuple(names)
        self._lifetime = lifetime
        self._clock = clock
        self._sleep = sleep

    async def step(self) -> Pair:
        """Move the renewal on by what is due, and return what is to be served now.

        Raises KubernetesError; the caller keeps serving what it had.
        """
        secret = await self._current()
        served, coming = _pair(secret, _SERVED), _pair(secret, _NEXT)
        told = served is not None and await self._tell(_bytes(secret, _AUTHORITIES))
        if served is None:
            secret = await self._start_anew(secret)
            await self._tell(_bytes(secret, _AUTHORITIES))
        elif coming is not None:
            if told:
                secret = await self._write(secret, dict(zip(_SERVED, _parts(coming), strict=True)))
        elif self._clock() >= served.renew_at:
            pair, authority = issue(self._names, self._clock(), self._lifetime)
            old = first_certificate(_bytes(secret, _AUTHORITIES))
            change = dict(zip(_NEXT, _parts(pair), strict=True))
            secret = await self._write(secret, change | {_AUTHORITIES: authority + old})
            await self._tell(_bytes(secret, _AUTHORITIES))
        pair_now = _pair(secret, _SERVED)
        if pair_now is None:
            raise KubernetesError(
                f"the secret {self._namespace}/{SECRET} holds no certificate; delete it, and a new"
                " one is made"
            )
        return pair_now

    async def run(self, serve: Callable[[Pair], None], period_s: float = PERIOD_S) -> None:
        """Step again and again, and hand every new pair to `serve`."""
        serving: Pair | None = None
        while True:
            try:
                pair = await self.step()
                if pair != serving:
                    serve(pair)
                    serving = pair
            except KubernetesError as error:
                # The pair that is served stays; the next step tries again.
                _log.warning("certificate not looked after", error=str(error))
            await self._sleep(period_s)

    async def _current(self) -> Secret:
        """The Secret, made now if there is none."""
        with contextlib.suppress(NotFoundError):
            return await self._client.get(SECRETS, SECRET, self._namespace)
        pair, authority = issue(self._names, self._clock(), self._lifetime)
        values = dict(zip(_SERVED, _parts(pair), strict=True)) | {_AUTHORITIES: authority}
        body = {
            "metadata": {"name": SECRET, "namespace": self._namespace},
            "type": "Opaque",
            "data": _encoded(values),
        }
        try:
            return await self._client.create(SECRETS, body, self._namespace)
        except AlreadyExistsError:
            return await self._client.get(SECRETS, SECRET, self._namespace)

    async def _start_anew(self, secret: Secret) -> Secret:
        """Replace what cannot be read."""
        pair, authority = issue(self._names, self._clock(), self._lifetime)
        values = dict(zip(_SERVED, _parts(pair), strict=True)) | {_AUTHORITIES: authority}
        return await self._write(secret, values)

    async def _write(self, secret: Secret, values: Mapping[str, bytes]) -> Secret:
        """Change the Secret as it was read; if another replica was faster, its word counts."""
        data: dict[str, str | None] = dict(_encoded(values))
        if _SERVED[0] in values:
            data |= dict.fromkeys(_NEXT)
        body = {
            "metadata": {"resourceVersion": secret.metadata.resource_version},
            "data": data,
        }
        try:
            return await self._client.patch(SECRETS, SECRET, body, self._namespace)
        except ConflictError:
            return await self._client.get(SECRETS, SECRET, self._namespace)

    async def _tell(self, authorities: bytes) -> bool:
        """Tell API servers whom to trust; true if the webhook configuration says so already."""
        wanted = b64encode(authorities).decode()
        try:
            found = await self._client.get(WEBHOOKS, CONFIGURATION)
        except NotFoundError:
            return True
        behind = [each for each in found.webhooks if each.client_config.ca_bundle != wanted]
        if behind:
            told = [{"name": each.name, "clientConfig": {"caBundle": wanted}} for each in behind]
            body = {"webhooks": told}
            await self._client.patch(WEBHOOKS, CONFIGURATION, body, form=PatchForm.STRATEGIC)
        return not behind


def _bytes(secret: Secret, key: str) -> bytes:
    try:
        return b64decode(secret.data.get(key, ""), validate=True)
    except ValueError:
        return b""


def _pair(secret: Secret, keys: tuple[str, str]) -> Pair | None:
    """The pair under these keys; `None` if there is none that can be read."""
    pair = Pair(*(_bytes(secret, key) for key in keys))
    try:
        pair.renew_at  # noqa: B018  (it reads the certificate)
    except ValueError:
        return None
    return pair


def _parts(pair: Pair) -> tuple[bytes, bytes]:
    return pair.certificate, pair.key


def _encoded(values: Mapping[str, bytes]) -> dict[str, str]:
    return {key: b64encode(value).decode() for key, value in values.items()}
