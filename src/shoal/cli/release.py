"""`shoal release`: stop acting, on a cluster or on a running `shoal up`."""

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from shoal.cli.cluster import Access, call, read_catalog
from shoal.cli.errors import CannotError, UsageError
from shoal.cli.where import DEFAULT_READING, DEFAULT_WHERE, Reading, Where, find

if TYPE_CHECKING:
    from shoal.kubernetes.api.client import Client
    from shoal.kubernetes.release import Released


def release(
    *,
    yes: Annotated[bool, Parameter(name="--yes", negative="")] = False,
    where: Where = DEFAULT_WHERE,
    reading: Reading = DEFAULT_READING,
) -> None:
    """Give the cluster back: lift every gate, remove admission, manage no namespace any more.

    Pods that run are not touched; those that waited go to kube-scheduler as they are. It may be run
    again if it broke off. A running shoal up decides nothing any more, until shoal resume.

    Parameters
    ----------
    yes
        Needed for a cluster: every waiting pod goes at once.
    """
    find(where, reading).release(sure=yes)


def release_cluster(access: Access, *, sure: bool) -> None:
    """Lift every gate of a cluster and stop acting there."""
    if not sure:
        raise UsageError("this lets every waiting pod go at once; write --yes if that is meant.")
    catalog = read_catalog(access)

    async def work(client: "Client") -> "Released":
        from shoal.kubernetes.release import release as give_back

        return await give_back(client, catalog, progress=_progress)

    done = call(access, work)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(
        f"released {done.pods:,} pods in {len(done.namespaces)} namespaces;"
        f" {done.claims:,} claims made, {done.objects} admission objects removed."
    )
    for (namespace, pod), reason in sorted(done.claimless.items()):
        print(f"no claim for {namespace}/{pod}: {reason}")
    if done.left:
        for (namespace, pod), reason in sorted(done.left.items()):
            print(f"still gated {namespace}/{pod}: {reason}")
        raise CannotError(f"{len(done.left)} pods could not be released; run it again.")


def _progress(done: "Released") -> None:
    if sys.stderr.isatty():
        print(f"\r{done.pods:,} pods released", end="", file=sys.stderr, flush=True)
