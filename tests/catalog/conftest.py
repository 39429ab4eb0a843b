"""What tests of the catalogue share."""

import pytest

from shoal.catalog.catalog import Catalog
from shoal.catalog.load import load_catalog


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """Shoal's own facts."""
    return load_catalog()
