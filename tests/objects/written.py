"""Files with pools and queues in a line each, and what is said of them."""

from collections.abc import Sequence
from datetime import date

import pytest

from shoal.catalog.catalog import Catalog
from shoal.catalog.load import build, load_catalog, own_files
from shoal.catalog.load.reader import read_bytes, read_documents
from shoal.model.queue import Queue
from shoal.objects.files import LAST_DAY, BadObjectsError, Written, read_object_documents

CATALOG = load_catalog()


def queue(name: str, spec: str = "") -> str:
    """An AcceleratorQueue of five lines, whose spec is the fifth."""
    return (
        f"---\napiVersion: shoal.dev/v1alpha1\nkind: AcceleratorQueue\n"
        f"metadata: {{name: {name}}}\nspec: {{{spec}}}\n"
    )


def pool(name: str, spec: str) -> str:
    """An AcceleratorPool of five lines, whose spec is the fifth."""
    return queue(name, spec).replace("AcceleratorQueue", "AcceleratorPool")


def priced(*lines: str) -> Catalog:
    """The catalogue with a price book of these lines."""
    text = "schema: shoal.dev/catalog/v1\nprices:\n" + "\n".join(
        f"  - {{{each}}}" for each in lines
    )
    return build([*own_files(), read_bytes(text.encode(), "prices.yaml")])


def read(texts: Sequence[str], catalog: Catalog = CATALOG, day: date = LAST_DAY) -> Written:
    """What these texts become."""
    return read_object_documents(read_documents("".join(texts).encode(), "q.yaml"), catalog, day)


def only(texts: Sequence[str], name: str, catalog: Catalog = CATALOG) -> Queue:
    """The queue of a name in these texts."""
    found = read(texts, catalog).tree.get(name)
    assert found is not None
    return found


def problems(texts: Sequence[str], catalog: Catalog = CATALOG) -> list[str]:
    """What is said against these texts."""
    with pytest.raises(BadObjectsError) as caught:
        read(texts, catalog)
    return list(caught.value.problems)
