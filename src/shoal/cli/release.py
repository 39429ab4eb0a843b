"""`shoal release`: lift every gate and stop acting."""

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from shoal.cli.cluster import DEFAULT_ACCESS, Access, call, read_catalog
from shoal.cli.errors import CannotError, UsageError

if TYPE_CHECKING:
    from shoal.kubernetes.client import Client
    from shoal.kubernetes.release import Released


def release(
    *,
    yes: Annotated[bool, Parameter(name="--yes", negative="")] = False,
    access: Access = DEFAULT_ACCESS,
) -> None:
    """Give the cluster back: lift every gate, remove admission, manage no namespace any more.

    Pods that run are not touched; those that waited go to kube-scheduler as they are. It may be run
    again if it broke off.

    Parameters
    ----------
    yes
        Needed: every waiting pod goes at once.
    """
    if not yes:
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
