"""What tests of the API share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.server.app import make_app
from tests.server.client import Api
from tests.server.rig import platform


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with platform(tmp_path) as rig:
        client = Api(make_app(rig.standing), raise_server_exceptions=False)
        client.rig = rig
        yield client
