"""Kinds of object that only admission handles."""

from typing import Any, Final

import msgspec

from shoal.kubernetes.wire.kinds import (
    MUTATING_POLICIES,
    MUTATING_POLICY_BINDINGS,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    Kind,
)
from shoal.kubernetes.wire.meta import Object, Wire


class ClientConfig(Wire, frozen=True):
    """How a webhook is called; `ca_bundle` is PEM in base64."""

    ca_bundle: str = msgspec.field(name="caBundle", default="")


class Webhook(Wire, frozen=True):
    """One webhook of a configuration."""

    name: str = ""
    client_config: ClientConfig = ClientConfig()


class WebhookConfiguration(Object, frozen=True):
    """A mutating webhook configuration."""

    webhooks: tuple[Webhook, ...] = ()


class Secret(Object, frozen=True):
    """A secret; values are base64."""

    data: dict[str, str] = msgspec.field(default_factory=dict)


SECRETS: Final = Kind(Secret, name="Secret", plural="secrets")
WEBHOOKS: Final = Kind(
    WebhookConfiguration,
    name="MutatingWebhookConfiguration",
    plural="mutatingwebhookconfigurations",
    group="admissionregistration.k8s.io",
    namespaced=False,
)
INSTALLED: Final[tuple[Kind[Any], ...]] = (
    VALIDATING_POLICY_BINDINGS,
    VALIDATING_POLICIES,
    MUTATING_POLICY_BINDINGS,
    MUTATING_POLICIES,
    WEBHOOKS,
)
"""Kinds of what is installed, in the order in which it is removed."""
