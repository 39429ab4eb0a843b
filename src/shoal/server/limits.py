"""Bounds that hold before a request is read: how large a body may be."""

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal.server.problems import Kind, problem, response

LARGEST_BODY: Final = 4 << 20
"""Bytes of one request's body."""


class BodyLimit:
    """Answers 413 to larger bodies, without keeping what was sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body first, so that a body that is too large meets no route."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > LARGEST_BODY:
                said = f"the body has more than {LARGEST_BODY >> 20} MiB; send it in parts"
                await response(problem(Kind.TOO_LARGE, said))(scope, receive, send)
                return
        told = False

        async def whole() -> Message:
            nonlocal told
            if told:
                return await receive()
            told = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self._app(scope, whole, send)
