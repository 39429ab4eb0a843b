"""Shoal's admission in a cluster of the tests: its webhook in a thread, its objects installed."""

import contextlib
import ssl
from collections.abc import AsyncIterator, Coroutine
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Self, TypeVar

from aiohttp import web

from shoal.catalog.catalog import Catalog
from shoal.catalog.load import load_catalog
from shoal.kubernetes.admission.certificates import LIFETIME, server_context, use
from shoal.kubernetes.admission.installation import (
    NO_QUEUES,
    RIGHTS,
    Accounts,
    install,
    installation,
    uninstall,
)
from shoal.kubernetes.admission.keeper import Keeper
from shoal.kubernetes.admission.names import MUTATING_POLICY_SINCE
from shoal.kubernetes.admission.review import Judging
from shoal.kubernetes.admission.server import Server, application
from shoal.kubernetes.admission.webhooks import Target
from shoal.kubernetes.api.client import Client
from shoal.kubernetes.api.identity import find_identity
from shoal.kubernetes.api.transport import Transport
from shoal.model.queue import QueueTree
from tests.cluster.harness.api import ApiError, eventually
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.loops import LoopThread
from tests.cluster.harness.objects import job, pod

T = TypeVar("T")
Body = dict[str, Any]

ACCOUNTS = Accounts()
ACCOUNT = "system:serviceaccount:shoal:shoal-scheduler"
MANAGED, MANAGED_DRA = "team", "team-dra"
SIGNS = "signs"
DEBUGGER = {
    "name": "debugger",
    "image": "none",
    "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
}


class Admission:
    """Replicas of the webhook, which can be stopped and started, and the objects that call them.

    The namespaces `team` (device-plugin) and `team-dra` are managed.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        version: tuple[int, int] = (1, 37),
        tree: QueueTree = NO_QUEUES,
    ) -> None:
        self.cluster = cluster
        self.version = version
        self.tree = tree
        self.catalog: Catalog = load_catalog()
        self._loop = LoopThread()
        self._stack = contextlib.AsyncExitStack()
        self._server: Server | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.run(self._open())
        self.cluster.namespace("shoal")
        self.cluster.namespace(MANAGED, {"shoal.dev/mode": "manage"})
        self.cluster.namespace(
            MANAGED_DRA, {"shoal.dev/mode": "manage", "shoal.dev/channel": "dra"}
        )
        # The API server may still act on what a test before this one had installed.
        self._place_signs()
        self.wait_until_nothing_acts()
        self.start()
        self.install()
        self.renew()
        self.wait_until_it_acts()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.run(self._stack.aclose())
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread's loop and wait for it."""
        return self._loop.run(work)

    def start(self) -> None:
        """Start the webhook, on the port that it had before."""
        self.run(self._start())

    def stop(self) -> None:
        """Stop the webhook; calls to it are refused."""
        if self._server is not None:
            self.run(self._server.__aexit__())
            self._server = None

    def install(self) -> None:
        """Install the objects for `version`."""
        target = Target(url=f"https://127.0.0.1:{self.port}")
        objects = installation(self.version, self.names, ACCOUNTS, target, tree=self.tree)
        self.run(install(self.client, objects))

    def uninstall(self) -> None:
        """Remove the objects, and wait until API servers no longer act on them."""
        self.run(uninstall(self.client))
        self.wait_until_nothing_acts()

    def renew(self, lifetime: timedelta = LIFETIME) -> bytes:
        """One step of the keeper, whose pair is served; returns its certificate."""
        keeper = Keeper(self.client, "shoal", ["127.0.0.1"], lifetime=lifetime)
        pair = self.run(keeper.step())
        use(self.context, pair)
        return pair.certificate

    @property
    def names(self) -> Any:
        """The catalogue's names."""
        return self.catalog.names

    def refusal(self, body: Body, *, user: Any = None) -> str:
        """The sentence with which the creation of an object is refused."""
        try:
            (user or self.cluster.api).create(body)
        except ApiError as error:
            return error.message
        raise AssertionError(f"{body['kind']} {body['metadata']} was not refused")

    def grant(self, process: str, user: str) -> None:
        """Give a user the rights of a process of Shoal's, and none besides."""
        rules = [
            {
                "apiGroups": [right.group],
                "resources": [right.resource],
                "verbs": [*right.verbs],
                **({"resourceNames": [*right.names]} if right.names else {}),
            }
            for right in RIGHTS
            if right.process == process
        ]
        meta = {"name": f"shoal-{process}"}
        rbac = "rbac.authorization.k8s.io"
        self.cluster.api.apply(
            {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules}
        )
        self.cluster.api.apply(
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": meta,
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": meta["name"]},
                "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
            }
        )

    def wait_until_it_acts(self) -> None:
        """Wait until the API server gates, guards and calls the webhook."""
        wanted = ["held", "refused", "held", "refused", "refused"]
        eventually(lambda: self._signs() == wanted, 60, lambda: f"not all acts: {self._signs()}")

    def wait_until_nothing_acts(self) -> None:
        """Wait until the API server has forgotten what was removed."""
        wanted = ["free"] * 5
        eventually(lambda: self._signs() == wanted, 60, lambda: f"it still acts: {self._signs()}")

    def _signs(self) -> list[str]:
        """What would become of a pod to be gated, a wrong one, and one on the DRA channel, of a
        suspended Job that leaves its queue, and of a debug container that takes devices.

        Dry runs show it; nothing is created or changed. An API server begins to act on one policy
        after the other, so each sort is tried.
        """
        marks = {"ALIYUN_COM_GPU_MEM_IDX": "0"}
        return [
            self._try(pod("try", 1, namespace=MANAGED), "schedulingGates"),
            self._try(pod("try", namespace=MANAGED, annotations=marks), "schedulingGates"),
            self._try(pod("try", 1, namespace=MANAGED_DRA), "resourceClaims"),
            self._change(
                f"/apis/batch/v1/namespaces/{SIGNS}/jobs/sign",
                {"metadata": {"labels": {"shoal.dev/queue": None}}, "spec": {"suspend": False}},
                "application/merge-patch+json",
            ),
            self._change(
                f"/api/v1/namespaces/{SIGNS}/pods/sign/ephemeralcontainers",
                {"spec": {"ephemeralContainers": [DEBUGGER]}},
                "application/strategic-merge-patch+json",
            ),
        ]

    def _place_signs(self) -> None:
        """Make what `_signs` would change, before anything is guarded."""
        self.cluster.namespace(SIGNS, {"shoal.dev/mode": "manage"})
        suspended = job("sign", 1, namespace=SIGNS, fields={"suspend": True})
        suspended["metadata"]["labels"] = {"shoal.dev/queue": "default"}
        eventually(lambda: self._made(suspended), 60, "the Job of the signs is refused")
        eventually(lambda: self._made(pod("sign", namespace=SIGNS)), 60, "its pod is refused")

    def _made(self, body: Body) -> bool:
        try:
            self.cluster.api.create(body)
        except ApiError as error:
            if error.code != HTTPStatus.CONFLICT:
                return False
        return True

    def _change(self, path: str, body: Body, content_type: str) -> str:
        try:
            self.cluster.api.call("PATCH", f"{path}?dryRun=All", body, content_type)
        except ApiError:
            return "refused"
        return "free"

    def _try(self, body: Body, mark: str) -> str:
        path = f"/api/v1/namespaces/{body['metadata']['namespace']}/pods?dryRun=All"
        try:
            return "held" if self.cluster.api.call("POST", path, body)["spec"].get(mark) else "free"
        except ApiError:
            return "refused"

    async def _open(self) -> None:
        transport = Transport(find_identity(str(self.cluster.kubeconfig)))
        self.client = Client(await self._stack.enter_async_context(transport))
        self.context: ssl.SSLContext = server_context()

    async def _start(self) -> None:
        gates = self.version < MUTATING_POLICY_SINCE
        judging = Judging.by(self.tree, ACCOUNTS.controllers)
        app = application(self.catalog, gates=gates, judging=lambda: judging)
        self._server = Server(app, self.context, "127.0.0.1", self.port)
        await self._server.__aenter__()
        self.port = self._server.port


@contextlib.asynccontextmanager
async def serving(app: web.Application, context: ssl.SSLContext) -> AsyncIterator[int]:
    """Another party's webhook; yields its port."""
    async with Server(app, context, "127.0.0.1", 0) as server:
        yield server.port
