"""What it costs to read and to keep what a Kubernetes API server sends."""

import asyncio
import gc
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator

from benchmarks.frame import Result, bench
from shoal.kubernetes.api.lines import split_lines
from shoal.kubernetes.api.store import Store
from shoal.kubernetes.wire.kinds import PODS
from shoal.kubernetes.wire.pod import Pod

PODS_LISTED = 5_000
PAGE = 500
ROUNDS = 5
PIECE_BYTES = 65_536


def _managed_fields(manager: str, entries: int) -> dict[str, object]:
    """Half of what an API server sends of a pod, and nothing that Shoal reads."""
    fields: dict[str, object] = {
        f'k:{{"name":"field-{i}"}}': {".": {}, "f:name": {}} for i in range(entries)
    }
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-11-29T12:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": fields},
    }


def _metadata(i: int) -> dict[str, object]:
    job = f"train-{i // 8:05}"
    return {
        "name": f"{job}-{i % 8}-x7k2p",
        "namespace": f"team-{i % 40}",
        "uid": f"00000000-0000-4000-8000-{i:012}",
        "resourceVersion": str(100_000 + i),
        "creationTimestamp": "2026-11-29T12:00:00Z",
        "labels": {
            "job-name": job,
            "batch.kubernetes.io/job-completion-index": str(i % 8),
            "app.kubernetes.io/part-of": "training",
        },
        "annotations": {"shoal.dev/isolation": "device"},
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": job,
                "uid": f"10000000-0000-4000-8000-{i // 8:012}",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "managedFields": [
            _managed_fields("kube-controller-manager", 30),
            _managed_fields("kubelet", 12),
        ],
    }


def _pin(node: str) -> dict[str, object]:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _container() -> dict[str, object]:
    asked = {"nvidia.com/gpu": "1", "memory": "64Gi"}
    return {
        "name": "main",
        "image": "team/train:2026.11",
        "command": ["python", "-m", "train", "--config", "/etc/train/config.yaml"],
        "env": [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(12)],
        "resources": {"limits": asked, "requests": asked | {"cpu": "8"}},
        "volumeMounts": [{"name": f"volume-{n}", "mountPath": f"/mnt/{n}"} for n in range(4)],
        "imagePullPolicy": "IfNotPresent",
    }


def _pod(i: int) -> dict[str, object]:
    """A running pod of a training job, about as an API server sends it."""
    node = f"gpu-{i // 8:04}"
    true = {"status": "True", "lastProbeTime": None, "lastTransitionTime": "2026-11-29T12:00:05Z"}
    return {
        "metadata": _metadata(i),
        "spec": {
            "nodeName": node,
            "containers": [_container()],
            "tolerations": [
                {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
                for key in ("not-ready", "unreachable")
            ],
            "affinity": _pin(node),
            "volumes": [{"name": f"volume-{n}", "emptyDir": {}} for n in range(4)],
            "schedulerName": "default-scheduler",
            "priority": 0,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
        },
        "status": {
            "phase": "Running",
            "startTime": "2026-11-29T12:00:01Z",
            "conditions": [
                true | {"type": name} for name in ("PodScheduled", "Initialized", "Ready")
            ],
            "containerStatuses": [
                {
                    "name": "main",
                    "ready": True,
                    "restartCount": 0,
                    "imageID": "sha256:" + "0" * 64,
                    "state": {"running": {"startedAt": "2026-11-29T12:00:04Z"}},
                }
            ],
        },
    }


def _pages() -> list[bytes]:
    pods = [_pod(i) for i in range(PODS_LISTED)]
    return [
        json.dumps(
            {"metadata": {"resourceVersion": "200000"}, "items": pods[start : start + PAGE]},
            separators=(",", ":"),
        ).encode()
        for start in range(0, PODS_LISTED, PAGE)
    ]


def _store() -> Store[Pod]:
    return Store(PODS, {"node": lambda pod: (pod.spec.node_name,)})


def _fill(pages: list[bytes]) -> Store[Pod]:
    store = _store()
    store.begin_list()
    for page in pages:
        for pod in PODS.read_page(page).items:
            store.put(pod)
    store.end_list("200000")
    return store


def _fastest(work: Callable[[], object]) -> float:
    """Seconds of the fastest of some rounds, as other work on the machine only ever slows."""
    seconds = []
    for _ in range(ROUNDS):
        gc.collect()
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _retained(work: Callable[[], object]) -> int:
    """Bytes that the result of `work` keeps."""
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    result = work()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del result
    return after - before


async def _in_pieces(stream: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(stream), PIECE_BYTES):
        yield stream[start : start + PIECE_BYTES]


def _watch(store: Store[Pod], stream: bytes) -> None:
    async def follow() -> None:
        async for line in split_lines(_in_pieces(stream)):
            store.apply(PODS.read_event(line))

    asyncio.run(follow())


@bench
def kubernetes_wire() -> Iterator[Result]:
    """Read a list of 5,000 pods and as many changes into a store, and keep them."""
    pages = _pages()
    per_pod_bytes = sum(map(len, pages)) / PODS_LISTED
    yield Result("size of a pod on the wire", per_pod_bytes / 1024, "KiB")
    typed_s = _fastest(lambda: _fill(pages))
    untyped_s = _fastest(lambda: [json.loads(page) for page in pages])
    yield Result(
        "list: time per pod, decoded, stored and indexed", typed_s / PODS_LISTED * 1e6, "us"
    )
    yield Result(
        "list: share of the time of json.loads alone", typed_s / untyped_s, "", at_most=0.5
    )
    lines = [
        json.dumps({"type": "MODIFIED", "object": _pod(i)}).encode() for i in range(PODS_LISTED)
    ]
    stream = b"\n".join([*lines, b""])
    watch_s = _fastest(lambda: _watch(_store(), stream))
    yield Result(
        "watch: time per change, cut, decoded and stored", watch_s / PODS_LISTED * 1e6, "us"
    )
    kept = _retained(lambda: _fill(pages))
    yield Result("memory kept per pod", kept / PODS_LISTED / 1024, "KiB", at_most=8.0)
    loaded = _retained(lambda: [json.loads(page) for page in pages])
    yield Result("memory: share of what json.loads keeps", kept / loaded, "", at_most=0.5)
