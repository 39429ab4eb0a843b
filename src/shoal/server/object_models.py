"""What the API takes and says about changed pools and queues."""

from typing import Annotated

from pydantic import Field

from shoal.server.models import Model
from shoal.server.whole import Text


class ObjectFile(Model):
    """A file with pools and queues; `name` is what problems call it."""

    name: Annotated[Text, Field(min_length=1, max_length=1000)]
    text: Text


class ObjectFiles(Model):
    """All pools and queues that there are to be. With `dry_run` only what they mean is said."""

    files: Annotated[list[ObjectFile], Field(min_length=1, max_length=500)]
    dry_run: bool = False


class MeaningView(Model):
    """One thing that changed pools and queues mean, about a queue or a pool."""

    kind: str
    about: str
    debt: bool
    text: str


class ObjectsView(Model):
    """What pools and queues mean, and whether the platform keeps to them now."""

    applied: bool
    pools: int
    queues: int
    meanings: list[MeaningView]
