"""Changed pools and queues: read strictly, said what they will mean, and taken in all at once."""

from collections.abc import Iterable, Sequence
from threading import Lock

from shoal.loop.meanings import change, labels_of
from shoal.model.meaning import Debt, Meaning, PoolChanged, PoolDebt
from shoal.objects.files import BadObjectsError, Written, read_object_texts
from shoal.objects.pools import node_problems
from shoal.objects.tree import resolved
from shoal.server.desk import Desk
from shoal.server.models import ProblemPart
from shoal.server.object_models import MeaningView, ObjectFile, ObjectsView
from shoal.server.problems import Kind, ProblemError
from shoal.server.standing import Look, Standing
from shoal.texts.language import Language
from shoal.texts.meanings import meaning_text


class Changes:
    """Takes changed files in, one after another, for one platform."""

    def __init__(self, standing: Standing, desk: Desk) -> None:
        self._standing = standing
        self._desk = desk
        self._one_at_a_time = Lock()

    def take(
        self, files: Sequence[ObjectFile], language: Language, *, dry_run: bool
    ) -> ObjectsView:
        """Say what the files mean, and unless it is a dry run have the platform keep to them.

        Raises `ProblemError` with every problem of the files, and then nothing is changed.
        """
        standing = self._standing
        with self._one_at_a_time:
            written = self._read(files)
            with standing.reading(language) as look:
                self._check_nodes(look, written)
                old = Written(look.world.fleet.pools, look.tree)
                now_us = standing.doors.now_us()
                new = change(look.world, old, written, standing.names, now_us)
            if not dry_run:
                self._desk.keep_to(written.pools, resolved(new.written.tree, standing.names))
                standing.take(new.written)
                standing.keep([(each.name, each.text) for each in files])
        return ObjectsView(
            applied=not dry_run,
            pools=len(written.pools),
            queues=len(written.tree.queues),
            meanings=[_view(each, language) for each in new.meanings],
        )

    def _read(self, files: Iterable[ObjectFile]) -> Written:
        day = self._standing.now().date()
        texts = [(each.name, each.text.encode()) for each in files]
        try:
            return read_object_texts(texts, self._standing.catalog, day)
        except BadObjectsError as error:
            raise _refused(error.problems) from None

    def _check_nodes(self, look: Look, written: Written) -> None:
        found = node_problems(written.pools, labels_of(look.world))
        if found:
            raise _refused(found)


def _refused(problems: Sequence[str]) -> ProblemError:
    parts = tuple(ProblemPart(message=each) for each in problems)
    return ProblemError(Kind.REFUSED, problems[0], parts)


def _view(said: Meaning, language: Language) -> MeaningView:
    about = said.pool if isinstance(said, PoolChanged | PoolDebt) else said.queue
    return MeaningView(
        kind=type(said).__name__,
        about=about,
        debt=isinstance(said, Debt),
        text=meaning_text(said, language),
    )
