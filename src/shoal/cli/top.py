"""`shoal top`: how many devices there are, and which namespaces hold them."""

from collections import Counter
from dataclasses import dataclass

from shoal.cli.cluster import DEFAULT_ACCESS, Access, Format, look, show


@dataclass(frozen=True, slots=True)
class Row:
    """One accelerator, or one namespace's part of it."""

    accelerator: str
    namespace: str
    devices: int
    share: str


def top(*, access: Access = DEFAULT_ACCESS, output: Format = "table") -> None:
    """Show how many devices of each accelerator there are, and which namespaces hold them.

    Parameters
    ----------
    output
        A table for people, or JSON.
    """
    total: Counter[str] = Counter()
    held: Counter[tuple[str, str]] = Counter()
    free: Counter[str] = Counter()
    for device in look(access).devices():
        total[device.accelerator] += 1
        names = {who.removeprefix("claim ").partition("/")[0] for who in device.holders}
        for namespace in names:
            held[device.accelerator, namespace] += 1
        free[device.accelerator] += not names
    rows = []
    for accelerator, count in sorted(total.items()):
        rows.append(Row(accelerator, "all", count, "100 %"))
        parts = [(n, who) for (kind, who), n in held.items() if kind == accelerator]
        for number, namespace in sorted(parts, reverse=True):
            rows.append(Row(accelerator, namespace, number, f"{number / count:.0%}"))
        rows.append(Row(accelerator, "free", free[accelerator], f"{free[accelerator] / count:.0%}"))
    columns = [
        ("ACCELERATOR", "accelerator"),
        ("NAMESPACE", "namespace"),
        ("DEVICES", "devices"),
        ("SHARE", "share"),
    ]
    show(rows, columns, output)
