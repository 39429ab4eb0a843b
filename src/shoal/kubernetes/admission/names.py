"""Labels, gate and names of objects that admission and the executor share."""

from typing import Final

from shoal.objects.annotations import PLAN, PREFIX, STAMPS

MODE: Final = f"{PREFIX}mode"
"""The namespace label that says whether Shoal acts there."""

MANAGE: Final = "manage"
OBSERVE: Final = "observe"
"""The default."""

CHANNEL: Final = f"{PREFIX}channel"
"""The namespace label that says how allocations reach nodes."""

DRA: Final = "dra"
DEVICE_PLUGIN: Final = "device-plugin"
"""The default."""

GATE: Final = PLAN
"""The scheduling gate that holds a pod until it is planned."""

CLAIM_ENTRY: Final = "shoal"
"""The name of the entry of `spec.resourceClaims` that the webhook adds."""

CLAIM_SUFFIX: Final = ".shoal.dev"
"""How the names of all ResourceClaims end that Shoal makes, and no others."""

CONFIGURATION: Final = "shoal"
"""The name of the webhook configuration."""

GATE_POLICY: Final = "gate.shoal.dev"
GATED_POLICY: Final = "gated.shoal.dev"
GUARD_POLICY: Final = "guard.shoal.dev"
FORM_POLICY: Final = "form.shoal.dev"
DEBUG_POLICY: Final = "debug.shoal.dev"
CLAIMS_POLICY: Final = "claims.shoal.dev"
JOBS_POLICY: Final = "jobs.shoal.dev"
NAMESPACES_POLICY: Final = "namespaces.shoal.dev"
STAMPS_POLICY: Final = "stamps.shoal.dev"

STAMPS_OF_DEPLOYMENTS: Final = {key: f"{PREFIX}deployment-{key[len(PREFIX) :]}" for key in STAMPS}
"""What the stamps are called on Deployments. Their controller copies all annotations to the
ReplicaSets that it makes, again and again, so that the same keys would be fought over."""

MUTATING_POLICY_SINCE: Final = (1, 36)
"""Since when MutatingAdmissionPolicy is `v1` and on; before, the webhook adds the gate."""
