"""The store behind the API server, read and set back directly: how a shared cluster is made new.

Deleting what a test left through the API would take as long as starting another cluster
(finalizers, namespaces, graceful deletion), and would miss kinds that nobody thought of.
"""

import base64
import http.client
import json
from typing import Any

REGISTRY = ("/registry/", "/registry0")  # where the API server keeps everything

# Leases of components that run on, and the addresses that the API server gives out, stay as they
# are: their holders hold them in memory, too.
LIVE = ("/registry/leases/kube-system/", "/registry/ranges/")

OPERATIONS = 100  # in one transaction; etcd allows 128 unless told otherwise


class Snapshot:
    """Every key of the registry with its value, at the moment when it is made."""

    def __init__(self, url: str) -> None:
        self._etcd = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
        self._values: dict[str, str] = {}
        self._versions: dict[str, str] = {}
        for each in self._range(keys_only=False):
            self._values[each["key"]] = each["value"]
            self._versions[each["key"]] = each["mod_revision"]
        self._etcd.close()

    def restore(self) -> None:
        """Remove keys that were not there, and give the others the values that they had."""
        there = {each["key"]: each["mod_revision"] for each in self._range(keys_only=True)}
        self._apply(
            [
                {"request_delete_range": {"key": key}}
                for key in there
                if key not in self._values and not _live(key)
            ]
            + [
                {"request_put": {"key": key, "value": value}}
                for key, value in self._values.items()
                if there.get(key) != self._versions[key] and not _live(key)
            ]
        )
        # What we have put back has a new version, which is not a change at the next restore.
        for each in self._range(keys_only=True):
            if each["key"] in self._values:
                self._versions[each["key"]] = each["mod_revision"]
        # Until the next restore, etcd may have been restarted.
        self._etcd.close()

    def _range(self, *, keys_only: bool) -> list[dict[str, str]]:
        first, end = (_encoded(each) for each in REGISTRY)
        kvs: list[dict[str, str]] = self._call(
            "range", {"key": first, "range_end": end, "keys_only": keys_only}
        ).get("kvs", [])
        return kvs

    def _apply(self, operations: list[dict[str, Any]]) -> None:
        for first in range(0, len(operations), OPERATIONS):
            self._call("txn", {"success": operations[first : first + OPERATIONS]})

    def _call(self, what: str, body: object) -> Any:
        self._etcd.request("POST", f"/v3/kv/{what}", json.dumps(body))
        answer = self._etcd.getresponse()
        content = answer.read()
        if answer.status != http.client.OK:
            raise RuntimeError(f"etcd: {what}: {content.decode(errors='replace')}")
        return json.loads(content)


def _encoded(key: str) -> str:
    return base64.b64encode(key.encode()).decode()


def _live(key: str) -> bool:
    return base64.b64decode(key).decode().startswith(LIVE)
