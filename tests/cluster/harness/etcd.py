"""The store behind the API server, read and set back directly: how a shared cluster is made new.

Deleting what a test left through the API would take as long as starting another cluster
(finalizers, namespaces, graceful deletion), and would miss kinds that nobody thought of.
"""

import base64
import http.client
import json
import time
from typing import Any

from tests.cluster.harness.processes import Failed

REGISTRY = ("/registry/", "/registry0")  # where the API server keeps everything

# What running components hold in memory, too, stays as it is: leases, the addresses that the API
# server gives out, and the accounts whose tokens the controller manager uses.
LIVE = (
    "/registry/leases/kube-system/",
    "/registry/ranges/",
    "/registry/serviceaccounts/kube-system/",
)

# The API server acts on these from memory, and looks at policies once a second.
ADMISSION = (
    "/registry/mutatingadmissionpolic",
    "/registry/mutatingwebhookconfigurations/",
    "/registry/validatingadmissionpolic",
    "/registry/validatingwebhookconfigurations/",
)
ADMISSION_S = 2

AGAIN_S = 0.05
STILL_S = 0.3  # without a write, a control plane that has just started is taken to be complete
START_S = 30


class Snapshot:
    """Every key of the registry with its value, once a new control plane writes no more."""

    def __init__(self, url: str) -> None:
        self._etcd = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
        deadline = time.monotonic() + START_S
        before: dict[str, str] = {}
        while (now := self._versions()) != before and time.monotonic() < deadline:
            before = now
            time.sleep(STILL_S)
        there = [each for each in self._range(keys_only=False) if not _live(each["key"])]
        self._value = {each["key"]: each["value"] for each in there}
        self._version = {each["key"]: each["mod_revision"] for each in there}
        self._etcd.close()

    def restore(self) -> None:
        """Remove keys that were not there, and give the others the values that they had."""
        removed: list[str] = []
        # A controller that sees an object go before its owner makes it again: look until all is so.
        while done := self._restore_once():
            removed += done
            time.sleep(AGAIN_S)
        # Until the next restore, etcd may have been restarted.
        self._etcd.close()
        if any(_decoded(key).startswith(ADMISSION) for key in removed):
            time.sleep(ADMISSION_S)

    def _restore_once(self) -> list[str]:
        # One object to a revision, as the API server does it: its watches resume after a revision,
        # and would miss the rest of what several objects have in common.
        there = self._versions()
        removed = [key for key in there if key not in self._value]
        for key in removed:
            self._call("deleterange", {"key": key})
        changed = [key for key in self._value if there.get(key) != self._version[key]]
        for key in changed:
            done = self._call("put", {"key": key, "value": self._value[key]})
            self._version[key] = done["header"]["revision"]
        return removed + changed

    def _versions(self) -> dict[str, str]:
        return {
            each["key"]: each["mod_revision"]
            for each in self._range(keys_only=True)
            if not _live(each["key"])
        }

    def _range(self, *, keys_only: bool) -> list[dict[str, str]]:
        first, end = (_encoded(each) for each in REGISTRY)
        kvs: list[dict[str, str]] = self._call(
            "range", {"key": first, "range_end": end, "keys_only": keys_only}
        ).get("kvs", [])
        return kvs

    def _call(self, what: str, body: object) -> Any:
        self._etcd.request("POST", f"/v3/kv/{what}", json.dumps(body))
        answer = self._etcd.getresponse()
        content = answer.read()
        if answer.status != http.client.OK:
            raise Failed(f"etcd: {what}: {content.decode(errors='replace')}")
        return json.loads(content)


def _encoded(key: str) -> str:
    return base64.b64encode(key.encode()).decode()


def _decoded(key: str) -> str:
    return base64.b64decode(key).decode()


def _live(key: str) -> bool:
    return _decoded(key).startswith(LIVE)
