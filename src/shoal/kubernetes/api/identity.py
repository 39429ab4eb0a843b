"""Which API server to call, and as whom.

In a pod the answer is three files and two variables, read here. Everywhere else it is a kubeconfig,
and `kubernetes_asyncio` reads it with all that kubectl knows: exec plugins, client certificates,
token files, OIDC. That package is imported only then, because it brings a whole client with it
(37 MiB, measured), which a scheduler in a pod should not carry.

Credentials are values with an age: whoever uses them asks again before they end, and at once when
the server says 401.
"""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

from shoal.kubernetes.api.errors import IdentityError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts a pod's identity."""

TOKEN_AGE_S: Final = 60.0
"""How long a token read from a file is used; the kubelet renews the file long before it expires."""

EXPIRY_MARGIN_S: Final = 60.0
"""How long before its end a credential is replaced."""


@dataclass(frozen=True)
class Credentials:
    """A server and a way to be let in. `lifetime_s` says when to ask for new ones, if ever."""

    server: str
    tls: ssl.SSLContext | None
    authorization: str = ""
    namespace: str = "default"
    server_name: str | None = None
    proxy: str | None = None
    lifetime_s: float | None = None


class Identity(Protocol):
    """A source of credentials."""

    async def credentials(self) -> Credentials:
        """Fresh credentials, read from the source again. Raises IdentityError."""
        ...


def find_identity(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Identity:
    """The identity that a user of kubectl would expect.

    A kubeconfig that was asked for, by argument or by `KUBECONFIG`, comes first; then the pod's
    own service account; then `~/.kube/config`. Like kubectl's, `KUBECONFIG` may list several files.
    """
    asked = kubeconfig or environ.get("KUBECONFIG")
    if asked or context:
        return KubeconfigIdentity(asked or _default_kubeconfig(), context)
    if "KUBERNETES_SERVICE_HOST" in environ and (service_account / "token").exists():
        return PodIdentity(service_account, environ)
    return KubeconfigIdentity(_default_kubeconfig(), context)


def _default_kubeconfig() -> str:
    return str(Path.home() / ".kube" / "config")


class PodIdentity:
    """The service account of the pod that this process runs in."""

    def __init__(
        self, directory: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ
    ) -> None:
        """Take the account from `directory` and the server's address from `environ`."""
        self._directory = directory
        self._environ = environ

    async def credentials(self) -> Credentials:
        """The token as it is on disk now. Raises IdentityError."""
        try:
            host = self._environ["KUBERNETES_SERVICE_HOST"]
            port = self._environ["KUBERNETES_SERVICE_PORT"]
            token = self._read("token")
            namespace = self._read("namespace")
            tls = ssl.create_default_context(cafile=str(self._directory / "ca.crt"))
        except KeyError as error:
            raise IdentityError(
                f"the environment variable {error} is missing: this does not run in a pod"
            ) from error
        except OSError as error:
            raise IdentityError(
                f"cannot read the service account in {self._directory}: {error}; "
                "set automountServiceAccountToken on the pod"
            ) from error
        if ":" in host:
            host = f"[{host}]"
        return Credentials(
            server=f"https://{host}:{port}",
            tls=tls,
            authorization=f"Bearer {token}",
            namespace=namespace or "default",
            lifetime_s=TOKEN_AGE_S,
        )

    def _read(self, name: str) -> str:
        return (self._directory / name).read_text(encoding="utf-8").strip()


class KubeconfigIdentity:
    """A user, a cluster and a context of a kubeconfig, as kubectl reads it."""

    def __init__(self, paths: str, context: str | None = None) -> None:
        """Read the files of `paths` (separated as in `KUBECONFIG`) each time anew."""
        self._paths = paths
        self._context = context

    async def credentials(self) -> Credentials:
        """Read the files, and run the exec plugin if the user has one. Raises IdentityError."""
        from kubernetes_asyncio import client, config  # noqa: PLC0415  (see the module's docstring)

        context = self._context or self._current_context()
        configuration: Any = client.Configuration()
        try:
            loader = await config.load_kube_config(
                config_file=self._paths,
                context=context,
                client_configuration=configuration,
                persist_config=False,
            )
        except (
            config.ConfigException,
            AssertionError,
            KeyError,
            OSError,
            TypeError,
            ValueError,
        ) as e:
            raise IdentityError(
                f"cannot use context {context!r} of the kubeconfig {self._paths}: {e}"
            ) from e
        try:
            tls = _tls(configuration)
        except (OSError, ValueError) as error:
            raise IdentityError(
                f"context {context!r} of the kubeconfig {self._paths} names certificates "
                f"that cannot be used: {error}"
            ) from error
        current: dict[str, Any] = (loader.current_context or {}).get("context") or {}
        return Credentials(
            server=configuration.host,
            tls=tls,
            authorization=configuration.api_key.get("BearerToken", ""),
            namespace=current.get("namespace") or "default",
            server_name=configuration.tls_server_name or None,
            proxy=configuration.proxy or None,
            lifetime_s=_lifetime_s(loader),
        )

    def _current_context(self) -> str:
        """The first `current-context` of the files: kubectl's rule, which the loader lacks."""
        import yaml  # noqa: PLC0415  (only for kubeconfigs)

        found = False
        for path in filter(None, self._paths.split(os.pathsep)):
            file = Path(path).expanduser()
            if not file.is_file():
                continue
            found = True
            try:
                content = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
            except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
                raise IdentityError(f"cannot read the kubeconfig {file}: {error}") from error
            name = content.get("current-context") if isinstance(content, dict) else None
            if isinstance(name, str) and name:
                return name
        if not found:
            raise IdentityError(
                f"there is no kubeconfig at {self._paths}; name one with KUBECONFIG or --kubeconfig"
            )
        raise IdentityError(f"the kubeconfig {self._paths} has no current-context; name a context")


def _tls(configuration: Any) -> ssl.SSLContext | None:
    """The TLS settings of a loaded kubeconfig; None for a server without TLS."""
    if not configuration.host.startswith("https:"):
        return None
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _lifetime_s(loader: Any) -> float | None:
    """How long the credentials hold by the exec plugin's word; else until the server says 401."""
    expiry: datetime | None = getattr(loader, "exec_plugin_expiry", None)
    if expiry is None:
        return None
    left = expiry - datetime.now(UTC) - timedelta(seconds=EXPIRY_MARGIN_S)
    return max(left.total_seconds(), 1.0)
