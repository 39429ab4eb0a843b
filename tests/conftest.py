"""What all tests share: the data folder, how hard hypothesis looks, and what is left open."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.cluster.harness.fixtures"]

# Examples are the same on every run and no test has a deadline, so that a busy machine fails none.
_common = settings(
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("check", parent=_common, max_examples=20, stateful_step_count=20)
settings.register_profile("test", parent=_common, max_examples=100)
settings.register_profile(
    "soak",
    parent=_common,
    derandomize=False,
    max_examples=int(os.environ.get("SHOAL_EXAMPLES", "5000")),
    stateful_step_count=200,
)
settings.load_profile(os.environ.get("SHOAL_PROFILE", "test"))

_CONNECT = {"cli", "cluster", "docs", "kubernetes", "server", "simulation"}
"""Rooms whose tests open connections or start processes."""


@pytest.fixture(autouse=True, scope="module")
def _left_open_is_told_here(request: pytest.FixtureRequest) -> Iterator[None]:
    """Find behind a module of such a room what its tests have left open.

    Python warns of that when it collects it as garbage, in whichever test it happens to do so.
    """
    yield
    if not _CONNECT.isdisjoint(request.path.parts):
        gc.collect()


@pytest.fixture(scope="session")
def shoal_data() -> Path:
    """The folder of published traces named by SHOAL_DATA; without it the test is skipped."""
    folder = os.environ.get("SHOAL_DATA")
    if not folder:
        pytest.skip("SHOAL_DATA does not name a folder with the published traces")
    path = Path(folder)
    if not path.is_dir():
        pytest.fail(f"SHOAL_DATA names {folder}, which is not a folder", pytrace=False)
    return path


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return Path(__file__).parent.parent
