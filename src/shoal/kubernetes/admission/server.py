"""The webhook's process: HTTPS in, an answer of `review` out. It keeps nothing between calls."""

import ssl
from collections.abc import Callable
from typing import Final, Self

from aiohttp import web

from shoal.catalog.catalog import Catalog
from shoal.kubernetes.admission import names as known
from shoal.kubernetes.admission import review
from shoal.kubernetes.admission.stamps import read_owner_question
from shoal.kubernetes.api.errors import WireError
from shoal.kubernetes.api.listening import listening
from shoal.model.modes import Channel
from shoal.objects.pods import Rules
from shoal.texts.language import Language

LARGEST_BODY: Final = 16 << 20
"""Bytes of a question at most; an object is at most 1.5 MiB in etcd, and comes twice."""

_CHANNELS: Final = {known.DRA: Channel.DRA, known.DEVICE_PLUGIN: Channel.DEVICE_PLUGIN}


def application(
    catalog: Catalog,
    *,
    gates: bool,
    judging: Callable[[], review.Judging] = lambda: review.DEFAULT_JUDGING,
    language: Language = Language.ENGLISH,
) -> web.Application:
    """The web application.

    Args:
        catalog: names that ask for devices.
        gates: whether the gate and the stamps are added here (before Kubernetes 1.36).
        judging: says what is judged by at present: the queues that there are, of which a namespace
            may use some, as is judged when it plans; and what decides on stamps.
        language: of refusals and hints.
    """

    async def answer(request: web.Request) -> web.Response:
        channel = _CHANNELS.get(request.match_info["channel"])
        if channel is None:
            raise web.HTTPNotFound(text="the path ends in dra or device-plugin")
        by = judging()
        rules = Rules(channel, by.queues)
        try:
            question = review.read_question(await request.read())
            said = review.judge(question, catalog, rules, by, gates=gates)
        except (ValueError, WireError) as error:
            raise web.HTTPBadRequest(text=f"this is no AdmissionReview of a pod: {error}") from None
        body = review.response(question, said, language)
        return web.Response(body=body, content_type="application/json")

    async def stamp(request: web.Request) -> web.Response:
        try:
            question = read_owner_question(await request.read())
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"this is no AdmissionReview: {error}") from None
        body = review.response(question, review.stamp(question, judging().stamping), language)
        return web.Response(body=body, content_type="application/json")

    async def healthy(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application(client_max_size=LARGEST_BODY)
    app.router.add_post("/mutate/{channel}", answer)
    app.router.add_post("/stamp", stamp)
    app.router.add_get("/healthz", healthy)
    return app


class Server:
    """The application behind TLS; an async context manager. `port` 0 takes a free one."""

    def __init__(
        self, app: web.Application, context: ssl.SSLContext, host: str = "", port: int = 8443
    ) -> None:
        """Prepare; nothing listens before the context is entered."""
        self.port = port
        """The port that it listens on, once it does."""
        runner = web.AppRunner(app, access_log=None)
        self._listening = listening(runner, host or None, port, context)

    async def __aenter__(self) -> Self:
        """Listen."""
        self.port = await self._listening.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening; answers under way are given."""
        await self._listening.__aexit__(None, None, None)
