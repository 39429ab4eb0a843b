"""`shoal why`: why a pod is where it is, or is not."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from shoal.cli.cluster import DEFAULT_ACCESS, Access, Format, look
from shoal.cli.errors import CannotError

if TYPE_CHECKING:
    from shoal.kubernetes.picture import Answer


def why(
    pod: str,
    *,
    namespace: Annotated[str, Parameter(name=["--namespace", "-n"])] = "default",
    access: Access = DEFAULT_ACCESS,
    output: Format = "table",
) -> None:
    """Say why a pod waits, where it is, or where it would start now.

    Parameters
    ----------
    pod
        The pod's name.
    namespace
        Its namespace.
    output
        Sentences for people, or JSON.
    """
    answer = look(access).why(namespace, pod)
    if answer is None:
        raise CannotError(f"there is no pod {pod} in namespace {namespace}.")
    if output == "json":
        print(json.dumps(asdict(answer), indent=2, ensure_ascii=False, default=str))
        return
    for line in lines(answer):
        print(line)


def lines(answer: "Answer") -> list[str]:
    """The answer in words: a heading, then one fact a line."""
    row = answer.row
    parts = [row.pod, row.stage]
    if row.devices:
        parts.append("1 device" if row.devices == 1 else f"{row.devices} devices")
    if row.workload:
        parts.append(f"workload {row.workload}")
    said = [" · ".join(parts)]
    if answer.position is not None:
        said.append(f"position  {answer.position[0]} of {answer.position[1]} that wait")
    said += _state(answer)
    if answer.scheduler:
        said.append(f"kube-scheduler says: {answer.scheduler}")
    if not answer.acts:
        said.append(
            f"Shoal only observes namespace {row.namespace};"
            " label it shoal.dev/mode=manage to have it act there."
        )
    return said


def _state(answer: "Answer") -> list[str]:
    from shoal.texts.holds import hold_text
    from shoal.texts.verdicts import verdict_text

    row = answer.row
    if answer.hold is not None:
        return [f"held back {hold_text(answer.hold)}"]
    if answer.verdict is not None:
        return [f"waits     {verdict_text(answer.verdict)}"]
    if answer.place is not None:
        would = "starts now" if answer.acts else "would start"
        devices = ", ".join(answer.place.leaves) or "no device"
        return [f"place     {would} on {answer.place.node} with {devices}"]
    if row.stage == "released":
        return [f"place     let go for {row.node}; kube-scheduler has not bound it yet"]
    if row.stage == "bound":
        return [f"place     on {row.node} with {', '.join(row.leaves) or 'no device'}"]
    if row.stage == "gone":
        return ["ended     it holds nothing any more"]
    return []
