"""`shoal submit`: manifests as they are, or one line, to a running `shoal up`."""

import secrets
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from shoal.cli.client import Api, ApiError, Json
from shoal.cli.documents import Written, read_all
from shoal.cli.errors import UsageError
from shoal.cli.numbers import whole_number
from shoal.cli.output import plain
from shoal.cli.where import DEFAULT_WHERE, Where, socket_of
from shoal.texts.screens import screen_text


@Parameter(name="*")
@dataclass(frozen=True)
class Line:
    """The one-line form: what would stand in a manifest."""

    name: Annotated[str | None, Parameter(name="--name")] = None
    """The workload's name; made up if not given."""
    devices: Annotated[int | None, Parameter(name="--devices", converter=whole_number)] = None
    """Devices of each pod."""
    pods: Annotated[int | None, Parameter(name="--pods", converter=whole_number)] = None
    """Pods that start together; 1 if not given."""
    accelerators: Annotated[str | None, Parameter(name="--accelerators")] = None
    """Which will do, by name or group, such as H100 or "H100|A100-80GB"."""
    memory: Annotated[str | None, Parameter(name="--memory")] = None
    """Memory on each device, such as 10Gi: a share of a device."""
    compute: Annotated[str | None, Parameter(name="--compute")] = None
    """Percent of each device's compute: a share of a device."""
    isolation: Annotated[str | None, Parameter(name="--isolation")] = None
    """The least isolation, such as hardware."""
    links: Annotated[str | None, Parameter(name="--links")] = None
    """A connection that the devices must have, such as nvlink."""
    type: Annotated[
        Literal["training", "inference", "notebook", "batch"] | None, Parameter(name="--type")
    ] = None
    """What kind of work it is; batch if not given."""
    priority: Annotated[str | None, Parameter(name="--priority")] = None
    """A priority of the queue, by its name."""
    run: Annotated[str | None, Parameter(name="--run")] = None
    """How long it runs at most, such as 2h."""
    cpu: Annotated[str | None, Parameter(name="--cpu")] = None
    """CPU of each pod, such as 8."""
    host_memory: Annotated[str | None, Parameter(name="--host-memory")] = None
    """Host memory of each pod, such as 64Gi."""


NO_LINE = Line()

_ANNOTATIONS = (
    *("devices", "accelerators", "memory", "compute", "isolation", "links"),
    *("type", "priority", "run"),
)


def submit(
    *files: Path,
    file: Annotated[list[Path] | None, Parameter(name=["--filename", "-f"], negative="")] = None,
    queue: Annotated[str | None, Parameter(name=["--queue", "-q"])] = None,
    namespace: Annotated[str, Parameter(name=["--namespace", "-n"])] = "default",
    line: Line = NO_LINE,
    dry_run: Annotated[bool, Parameter(name="--dry-run", negative="")] = False,
    where: Where = DEFAULT_WHERE,
) -> None:
    """Submit manifests as they are, or one workload in a line, all or none.

    In a line: shoal submit --queue vision --devices 2 --accelerators H100 --type training.

    Parameters
    ----------
    files
        Files with manifests (Pod, Job, Deployment, ReplicaSet, StatefulSet, JobSet, PyTorchJob,
        RayJob, Notebook), several documents each if you like; - reads standard input.
    file
        The same, as kubectl takes it.
    queue
        The queue of those that name none.
    namespace
        The namespace of those that name none.
    dry_run
        Only say whether they could be submitted.
    """
    path = socket_of(where, "kubectl apply, in a namespace with the label shoal.dev/mode=manage")
    written = read_all([*files, *(file or ())])
    said = [each.name for each in fields(Line) if getattr(line, each.name) is not None]
    if written and said:
        option = said[0].replace("_", "-")
        raise UsageError(f"--{option} is of the one-line form; write it in the manifest.")
    if not written:
        if not said:
            raise UsageError(
                "nothing to submit; write files, or a line such as --devices 2 --type training."
            )
        if line.pods is not None and line.pods < 1:
            raise UsageError(f"--pods expects how many pods there are, from 1, found {line.pods}.")
        written = [Written("", 1, 1, None, manifest_of(line, queue))]
    body: Json = {
        "manifests": [each.data for each in written],
        "namespace": namespace,
        "dry_run": dry_run,
    }
    if queue is not None:
        body["queue"] = queue
    try:
        answer = Api(path, where.language.value).post("/workloads", body)
    except ApiError as error:
        raise _told(error, written) from None
    for hint in answer["hints"]:
        print(f"shoal: {plain(hint)}", file=sys.stderr)
    key = "would-submit" if dry_run else "submitted"
    for each in answer["workloads"]:
        shown = f"{each['namespace']}/{each['name']}"
        print(screen_text(key, where.language, name=shown))


def _told(error: ApiError, written: list[Written]) -> Exception:
    """Print each problem with its file and line, and return what the command ends with."""
    if not error.parts:
        return error.as_command_error()
    for part in error.parts:
        number = part.get("document")
        field = str(part.get("field", ""))
        place = written[number - 1].place(field) if number else ""
        message = plain(part["message"])
        named = "" if message.startswith(field) else field
        shown = ": ".join(text for text in (place, named, message) if text)
        print(shown, file=sys.stderr)
    count = len(error.parts)
    said = f"{count} problem{'s' * (count != 1)}; nothing was submitted."
    ended = error.as_command_error()
    return type(ended)(said)


def manifest_of(line: Line, queue: str | None) -> dict[str, Any]:
    """The manifest that a line stands for: a pod, or a Job of several."""
    kind = line.type or "batch"
    name = line.name or f"{kind}-{secrets.token_hex(3)}"
    annotations = {
        f"shoal.dev/{key}": str(value)
        for key in _ANNOTATIONS
        if (value := getattr(line, key)) is not None
    }
    if queue is not None:
        annotations["shoal.dev/queue"] = queue
    if not {"shoal.dev/devices", "shoal.dev/memory", "shoal.dev/compute"} & annotations.keys():
        annotations["shoal.dev/devices"] = "1"
    requests = {
        key: value for key, value in (("cpu", line.cpu), ("memory", line.host_memory)) if value
    }
    spec = {"containers": [{"name": "main", "resources": {"requests": requests}}]}
    if (line.pods or 1) == 1:
        # The platform makes it again, so it may be evicted as all other work.
        annotations["shoal.dev/recreate"] = "true"
        metadata = {"name": name, "annotations": annotations}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "parallelism": line.pods,
            "template": {"metadata": {"annotations": annotations}, "spec": spec},
        },
    }
