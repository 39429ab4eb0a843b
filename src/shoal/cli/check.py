"""`shoal check`: whether what Shoal has in mind agrees with the cluster."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from shoal.cli.cluster import DEFAULT_ACCESS, Access, call, check_policy, read_catalog
from shoal.cli.errors import CannotError, UsageError

if TYPE_CHECKING:
    from shoal.kubernetes.client import Client


def check(
    *,
    consistency: Annotated[bool, Parameter(name="--consistency", negative="")] = False,
    scheduler: Annotated[str | None, Parameter(name="--scheduler")] = None,
    access: Access = DEFAULT_ACCESS,
) -> None:
    """Compare Shoal's world with the API server: who holds which device, and who waits.

    Prints one sentence for each difference and fails if there is any.

    Parameters
    ----------
    consistency
        Make the world anew from the API server and compare it.
    scheduler
        Compare the world of a running scheduler as well: where it serves its metrics, such as
        http://127.0.0.1:9464.
    """
    if not consistency and scheduler is None:
        raise UsageError("say what to check: write --consistency, --scheduler URL, or both.")
    found = []
    if consistency:
        check_policy(access)
        found += [f"rebuilt: {each}" for each in _rebuilt(access)]
    if scheduler is not None:
        found += [f"running: {each}" for each in _running(scheduler)]
    for sentence in found:
        print(sentence)
    if found:
        raise CannotError(f"{len(found)} differences between Shoal's world and the API server.")
    print("Shoal's world and the API server agree.")


def _rebuilt(access: Access) -> list[str]:
    from shoal.kubernetes.picture import compare_once

    catalog = read_catalog(access)

    async def compare(client: "Client") -> list[str]:
        return await compare_once(client, catalog)

    return call(access, compare)


def _running(url: str) -> list[str]:
    import urllib.error
    import urllib.request

    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--scheduler expects such as http://127.0.0.1:9464, found {url!r}.")
    import msgspec

    try:
        place = f"{url.rstrip('/')}/consistency"
        with urllib.request.urlopen(place, timeout=60) as answer:  # noqa: S310 (checked above)
            return msgspec.json.decode(answer.read(), type=list[str])
    except (urllib.error.URLError, OSError, msgspec.MsgspecError) as error:
        raise CannotError(f"the scheduler at {url} did not answer: {error}.") from None
