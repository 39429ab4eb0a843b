"""A client of the API for tests."""

from typing import Any

from fastapi.testclient import TestClient

from shoal.server.app import PREFIX
from tests.server.rig import Rig

PROBLEM = "application/problem+json"


class Api(TestClient):
    """A client that knows the prefix, and the platform behind it."""

    rig: Rig

    def ask(self, path: str, **query: Any) -> Any:
        answer = self.get(PREFIX + path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def submit(self, *manifests: Any, **more: Any) -> Any:
        body = {"manifests": list(manifests), **more}
        answer = self.post(f"{PREFIX}/workloads", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def refused(self, *manifests: Any, **more: Any) -> list[tuple[int | None, str, str]]:
        body = {"manifests": list(manifests), **more}
        answer = self.post(f"{PREFIX}/workloads", json=body)
        assert answer.status_code in (400, 409, 422), answer.text
        assert answer.headers["content-type"] == PROBLEM
        return [
            (each.get("document"), each["field"], each["message"])
            for each in answer.json()["errors"]
        ]


def why(api: Api, name: str, **headers: str) -> Any:
    path = f"{PREFIX}/workloads/{api.rig.uid(name)}/why"
    answer = api.get(path, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()
