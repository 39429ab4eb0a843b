"""What all tests share: the data folder and how hard hypothesis looks."""

import os
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
