"""The API of a running platform, over its Unix socket."""

import http.client
import json
from collections.abc import Generator, Mapping
from pathlib import Path
from socket import socket
from typing import Any, Final
from urllib.parse import quote, urlencode

from shoal.cli.errors import CannotError, NoPlatformError, UsageError
from shoal.server.address import AddressError, connect

PREFIX: Final = "/api/v1"
TIMEOUT_S: Final = 90.0
"""The longest silence of a platform: more than it may take itself to say that it is busy."""
PAGE: Final = 1000

Json = dict[str, Any]

_ASKED_WRONGLY = (400, 413, 422)


class ApiError(Exception):
    """A problem that the API answered with (RFC 9457)."""

    def __init__(self, problem: Json) -> None:
        super().__init__(str(problem.get("detail", "the platform refused")))
        self.status = int(problem.get("status", 500))
        self.parts: list[Json] = list(problem.get("errors", []))

    def as_command_error(self) -> CannotError | UsageError:
        """The same as what a command ends with."""
        said = f"{self}."
        return UsageError(said) if self.status in _ASKED_WRONGLY else CannotError(said)


class _Connection(http.client.HTTPConnection):
    """HTTP to a socket of this user."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path
        self._timeout_s = timeout_s

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock: socket = connect(self._path, self._timeout_s)


class Api:
    """Asks a platform. Raises `CannotError` where it does not answer, `ApiError` for problems."""

    def __init__(self, path: Path, language: str = "en") -> None:
        self._path = path
        self._headers = {"Accept-Language": language, "Accept": "application/json"}

    def get(self, path: str, **query: object) -> Json:
        """What is at a path; parameters that are None are left out."""
        return self._ask("GET", _with_query(path, query))

    def post(self, path: str, body: Json | None = None) -> Json:
        """What comes of sending something to a path."""
        return self._ask("POST", path, body if body is not None else {})

    def delete(self, path: str) -> Json:
        """What comes of deleting what is at a path."""
        return self._ask("DELETE", path)

    def items(self, path: str, **query: object) -> tuple[list[Json], str]:
        """All pages of a list, and the platform's time."""
        found: list[Json] = []
        cursor: str | None = None
        while True:
            page = self.get(path, **query, limit=PAGE, cursor=cursor)
            found += page["items"]
            cursor = page["next"]
            if cursor is None:
                return found, page["now"]

    def events(
        self, path: str, last_id: str | None
    ) -> Generator[tuple[str, str, Json], None, None]:
        """Server-sent events: id, kind and data of each; ends when the connection does."""
        headers = {**self._headers, "Accept": "text/event-stream"}
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        connection = _Connection(self._path, TIMEOUT_S)
        try:
            response = self._begin(connection, "GET", path, None, headers)
            fields: dict[str, str] = {}
            for raw in response:
                line = raw.decode().rstrip("\n")
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                else:
                    if "data" in fields:
                        kind = fields.get("event", "message")
                        yield fields.get("id", ""), kind, json.loads(fields["data"])
                    fields = {}
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()

    def _ask(self, method: str, path: str, body: Json | None = None) -> Json:
        connection = _Connection(self._path, TIMEOUT_S)
        try:
            sent = None if body is None else json.dumps(body, allow_nan=False).encode()
            headers = dict(self._headers)
            if sent is not None:
                headers["Content-Type"] = "application/json"
            response = self._begin(connection, method, path, sent, headers)
            answer: Json = json.loads(response.read())
            return answer
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise CannotError(f"the platform did not answer: {error}.") from None
        finally:
            connection.close()

    def _begin(
        self,
        connection: _Connection,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        """Send a request and return its answer, whose body is not read yet."""
        try:
            connection.request(method, PREFIX + path, body, dict(headers))
        except AddressError as error:
            raise NoPlatformError(f"{error}.") from None
        response = connection.getresponse()
        if response.status >= 400:
            raise ApiError(json.loads(response.read()))
        return response


def segment(text: str) -> str:
    """A text as one segment of a path."""
    return quote(text, safe="")


def _with_query(path: str, query: Mapping[str, object]) -> str:
    given = {key: value for key, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path
