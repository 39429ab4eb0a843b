"""The fixtures of tests that need a Kubernetes. Mark such tests `cluster`.

- `cluster`: the shared cluster, emptied: nothing is there that Kubernetes has not made itself.
- `shared_cluster`: the same, as it was left: for fixtures of a module that set it up once.
- `new_cluster`: a function that starts another cluster, with the options of `Cluster`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.harness import binary
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.processes import Failed


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the control plane before the first test, as no test's time limit allows for it."""
    if session.config.option.collectonly:
        return
    if any(item.get_closest_marker("cluster") for item in session.items):
        try:
            binary.ready()
        except Failed as failed:
            raise pytest.UsageError(str(failed)) from None


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    """One cluster for all tests of this process, as the last test left it."""
    with Cluster() as cluster:
        cluster.remember()
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """The shared cluster, as if new; what a test adds ends with the test."""
    shared_cluster.reset()
    yield shared_cluster
    shared_cluster.end_guests()


@pytest.fixture
def new_cluster() -> Iterator[Callable[..., Cluster]]:
    """Starts clusters of the test's own: `new_cluster(node_grace_s=8, audit=True)`."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Cluster(**options))
