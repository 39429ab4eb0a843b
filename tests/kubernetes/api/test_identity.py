"""Who Shoal is, in a pod and with every kind of kubeconfig."""

import base64
import json
import ssl
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from shoal.kubernetes.api.errors import IdentityError
from shoal.kubernetes.api.identity import KubeconfigIdentity, PodIdentity, find_identity
from tests.kubernetes.fake_api import in_loop


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def _service_account(folder: Path, authority: trustme.CA) -> Path:
    folder.mkdir()
    (folder / "token").write_text("one\n")
    (folder / "namespace").write_text("shoal-system\n")
    authority.cert_pem.write_to_path(folder / "ca.crt")
    return folder


def _kubeconfig(path: Path, user: dict[str, Any], name: str = "here", **cluster: Any) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": "https://api:6443"} | cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": "team"}},
        ],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def _plugin(path: Path, status: dict[str, Any]) -> dict[str, Any]:
    """An exec plugin that counts its runs beside itself."""
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": status,
    }
    path.write_text(
        f"#!{sys.executable}\nimport json, os\n"
        "assert json.loads(os.environ['KUBERNETES_EXEC_INFO'])['kind'] == 'ExecCredential'\n"
        f"open({str(path)!r} + '.runs', 'a').write('x')\n"
        f"print({json.dumps(answer)!r})\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(path),
            "interactiveMode": "Never",
        }
    }


@in_loop
async def test_in_a_pod_the_token_is_read_each_time(tmp_path: Path, authority: trustme.CA) -> None:
    folder = _service_account(tmp_path / "account", authority)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    identity = find_identity(environ=environ, service_account=folder)
    assert isinstance(identity, PodIdentity)
    first = await identity.credentials()
    assert (first.server, first.authorization) == ("https://[fd00::1]:443", "Bearer one")
    assert (first.namespace, first.lifetime_s) == ("shoal-system", 60.0)
    (folder / "token").write_text("two")
    assert (await identity.credentials()).authorization == "Bearer two"
    (folder / "token").unlink()
    with pytest.raises(IdentityError, match="automountServiceAccountToken"):
        await identity.credentials()
    with pytest.raises(IdentityError, match="KUBERNETES_SERVICE_HOST"):
        await PodIdentity(folder, {}).credentials()


def test_a_kubeconfig_that_was_asked_for_comes_before_the_pod(
    tmp_path: Path, authority: trustme.CA
) -> None:
    folder = _service_account(tmp_path / "account", authority)
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    for identity in (
        find_identity("/some/file", environ=pod, service_account=folder),
        find_identity(environ=pod | {"KUBECONFIG": "/some/file"}, service_account=folder),
        find_identity(environ={}, service_account=folder),
        find_identity(environ=pod, service_account=tmp_path / "none"),
    ):
        assert isinstance(identity, KubeconfigIdentity)


@in_loop
async def test_tokens_and_their_files(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("from-a-file")
    for user, expected in [({"token": "given"}, "given"), ({"tokenFile": "token"}, "from-a-file")]:
        path = _kubeconfig(tmp_path / "config", user)
        found = await KubeconfigIdentity(str(path)).credentials()
        assert found.authorization == f"Bearer {expected}"
        assert (found.server, found.namespace, found.lifetime_s) == (
            "https://api:6443",
            "team",
            None,
        )


@in_loop
async def test_client_certificates_and_the_name_of_the_server(
    tmp_path: Path, authority: trustme.CA
) -> None:
    leaf = authority.issue_cert("admin@example")
    user = {
        "client-certificate-data": base64.b64encode(leaf.cert_chain_pems[0].bytes()).decode(),
        "client-key-data": base64.b64encode(leaf.private_key_pem.bytes()).decode(),
    }
    data = base64.b64encode(authority.cert_pem.bytes()).decode()
    extra: dict[str, Any] = {"certificate-authority-data": data, "tls-server-name": "kubernetes"}
    path = _kubeconfig(tmp_path / "config", user, **extra)
    found = await KubeconfigIdentity(str(path)).credentials()
    assert found.server_name == "kubernetes"
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_REQUIRED
    assert len(found.tls.get_ca_certs()) == 1
    blind: dict[str, Any] = {"insecure-skip-tls-verify": True}
    path = _kubeconfig(tmp_path / "config", user, **blind)
    found = await KubeconfigIdentity(str(path)).credentials()
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_NONE


@in_loop
async def test_an_exec_plugin_is_run_and_its_word_on_expiry_is_kept(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    expiry = datetime.now(UTC) + timedelta(hours=1)
    status = {"token": "t", "expirationTimestamp": expiry.strftime("%Y-%m-%dT%H:%M:%SZ")}
    path = _kubeconfig(tmp_path / "config", _plugin(plugin, status))
    identity = KubeconfigIdentity(str(path))
    found = await identity.credentials()
    assert found.authorization == "Bearer t"
    assert found.lifetime_s is not None
    assert 3000 < found.lifetime_s <= 3540
    await identity.credentials()
    assert (tmp_path / "plugin.runs").read_text() == "xx"
    path = _kubeconfig(tmp_path / "config", _plugin(plugin, {"token": "t"}))
    assert (await identity.credentials()).lifetime_s is None


@in_loop
async def test_a_failing_plugin_is_named(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such/plugin"}}
    path = _kubeconfig(tmp_path / "config", user)
    with pytest.raises(IdentityError, match="/no/such/plugin"):
        await KubeconfigIdentity(str(path)).credentials()


@in_loop
async def test_of_several_files_the_first_says_which_context_is_current(tmp_path: Path) -> None:
    one = _kubeconfig(tmp_path / "one", {"token": "1"}, "one")
    two = _kubeconfig(tmp_path / "two", {"token": "2"}, "two")
    both = f"{one}:{tmp_path / 'missing'}:{two}"
    assert (await KubeconfigIdentity(both).credentials()).authorization == "Bearer 1"
    assert (await KubeconfigIdentity(both, "two").credentials()).authorization == "Bearer 2"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no kubeconfig"),
        ("kind: Config\n", "has no current-context"),
        ("{", "cannot read the kubeconfig"),
        ("current-context: x\ncontexts: []\nclusters: []\nusers: []\n", "cannot use context 'x'"),
    ],
)
@in_loop
async def test_a_kubeconfig_that_cannot_be_used_is_refused_with_a_sentence(
    content: str | None, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(IdentityError, match=words):
        await KubeconfigIdentity(str(path)).credentials()
