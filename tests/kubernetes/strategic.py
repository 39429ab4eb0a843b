"""The fake API server with strategic merges of the lists that Shoal patches: by name."""

from typing import Any

from aiohttp import web

from tests.kubernetes.fake_api import Document, FakeApi

MERGED_BY_NAME = ("webhooks", "schedulingGates")


class StrategicApi(FakeApi):
    """A fake API server; lists of `MERGED_BY_NAME` are merged, and `$patch: delete` removes."""

    def _patch(self, resource: str, known: Document, patch: Document) -> web.Response:
        return super()._patch(resource, known, merged_by_name(known, patch))


def merged_by_name(known: Any, patch: Any) -> Any:
    """The merge patch that does what the strategic one says."""
    if not isinstance(patch, dict):
        return patch
    result = {}
    for key, value in patch.items():
        there = known.get(key) if isinstance(known, dict) else None
        if key in MERGED_BY_NAME and isinstance(value, list):
            items: dict[str, Any] = {each["name"]: each for each in there or []}
            for each in value:
                if each.get("$patch") == "delete":
                    items.pop(each["name"], None)
                else:
                    items[each["name"]] = _deep(items.get(each["name"], {}), each)
            result[key] = list(items.values())
        else:
            result[key] = merged_by_name(there, value)
    return result


def _deep(known: Any, change: Any) -> Any:
    if not (isinstance(known, dict) and isinstance(change, dict)):
        return change
    return known | {key: _deep(known.get(key), value) for key, value in change.items()}
