"""Kinds of object that own pods, or own what owns them: admission notes who asked for each."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from shoal.kubernetes.wire.kinds import Kind
from shoal.kubernetes.wire.meta import Object, OwnerReference


@dataclass(frozen=True, slots=True)
class OwnerKind:
    """A kind by its group, what paths call it, and what references call it."""

    group: str
    plural: str
    name: str


DEPLOYMENT: Final = OwnerKind("apps", "deployments", "Deployment")

OWNER_KINDS: Final = (
    OwnerKind("batch", "jobs", "Job"),
    OwnerKind("batch", "cronjobs", "CronJob"),
    OwnerKind("apps", "replicasets", "ReplicaSet"),
    DEPLOYMENT,
    OwnerKind("apps", "statefulsets", "StatefulSet"),
    OwnerKind("jobset.x-k8s.io", "jobsets", "JobSet"),
    OwnerKind("leaderworkerset.x-k8s.io", "leaderworkersets", "LeaderWorkerSet"),
    OwnerKind("kubeflow.org", "notebooks", "Notebook"),
    OwnerKind("kubeflow.org", "pytorchjobs", "PyTorchJob"),
    OwnerKind("kubeflow.org", "tfjobs", "TFJob"),
    OwnerKind("kubeflow.org", "mpijobs", "MPIJob"),
    OwnerKind("kubeflow.org", "xgboostjobs", "XGBoostJob"),
    OwnerKind("kubeflow.org", "paddlejobs", "PaddleJob"),
    OwnerKind("kubeflow.org", "jaxjobs", "JAXJob"),
    OwnerKind("trainer.kubeflow.org", "trainjobs", "TrainJob"),
    OwnerKind("ray.io", "rayclusters", "RayCluster"),
    OwnerKind("ray.io", "rayjobs", "RayJob"),
    OwnerKind("ray.io", "rayservices", "RayService"),
)
"""Kubernetes' own, and those of JobSet, LeaderWorkerSet, Kubeflow and KubeRay."""

WATCHED: Final = (("batch", "Job"), ("apps", "ReplicaSet"), ("", "Pod"))
"""Group and name of those of which the scheduler has a live copy anyway."""

_BY_NAME: Final = {(each.group, each.name): each for each in OWNER_KINDS}


def group_of(owner: OwnerReference) -> str:
    """The group of the kind that a reference names; empty for the core."""
    return owner.api_version.rpartition("/")[0]


def kind_of(owner: OwnerReference) -> Kind[Object] | None:
    """The kind that a reference names, of which metadata is read; None for one not known here."""
    known = _BY_NAME.get((group_of(owner), owner.kind))
    version = owner.api_version.rpartition("/")[2]
    # Whoever may change an object may write anything into its references.
    if known is None or re.fullmatch(r"v[0-9]{1,3}((alpha|beta)[0-9]{1,3})?", version) is None:
        return None
    return _kind(known, version)


@lru_cache(maxsize=256)
def _kind(known: OwnerKind, version: str) -> Kind[Object]:
    return Kind(Object, name=known.name, plural=known.plural, group=known.group, version=version)
