"""What the objects that people write to Shoal have in common: strict models, selectors, durations.

Errors are collected, not raised one at a time: each names the file, the line and the field, and
says what is allowed.
"""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from shoal.catalog.load import in_words
from shoal.catalog.load.reader import Document
from shoal.model.request import Operator, Requirement
from shoal.model.selector import Selector
from shoal.objects.durations import duration_us, is_zero

API_VERSION: Final = "shoal.dev/v1alpha1"

M = TypeVar("M", bound=BaseModel)

LABEL_KEY: Final = (
    r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
)
LABEL_VALUE: Final = r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$"

ObjectName = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", max_length=63)
]
LabelKey = Annotated[str, StringConstraints(pattern=LABEL_KEY, max_length=317)]
LabelValue = Annotated[str, StringConstraints(pattern=LABEL_VALUE)]
Text = Annotated[str, StringConstraints(max_length=4096)]
Duration = Annotated[str, StringConstraints(min_length=2, max_length=24)]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=64)]


class Strict(BaseModel):
    """Base of every part: fields in camel case, none unknown, no value of another type."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, alias_generator=to_camel, populate_by_name=False
    )


class MetadataModel(Strict):
    """Name and marks of an object."""

    name: ObjectName
    labels: Labels = Field(default_factory=dict)
    annotations: Annotated[dict[LabelKey, Text], Field(max_length=64)] = Field(default_factory=dict)


class ExpressionModel(Strict):
    """One test of a label selector."""

    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[list[LabelValue], Field(max_length=256)] = Field(default_factory=list)


class SelectorModel(Strict):
    """A label selector as in Kubernetes; an empty one chooses everything."""

    match_labels: Labels = Field(default_factory=dict)
    match_expressions: Annotated[list[ExpressionModel], Field(max_length=64)] = Field(
        default_factory=list
    )


@dataclass(slots=True)
class Source:
    """One document with an object, and the problems found in it."""

    document: Document
    problems: list[str]

    def complain(self, path: Sequence[int | str], sentence: str) -> None:
        """Note what is wrong with the part at `path`, and what to write instead."""
        self.problems.append(self.document.problem(path, sentence))

    def parsed(self, model: type[M]) -> M | None:
        """The document as `model`; None where it does not have its form, which is then noted.

        A field with nothing behind it is refused wherever it stands: it may be a slip, and what
        it would mean differs from field to field.
        """
        empty = list(_empty(self.document.data))
        for path in empty:
            self.complain(path, "is empty; write a value, or remove the field")
        try:
            read = model.model_validate(self.document.data)
        except ValidationError as error:
            for part in error.errors(include_url=False):
                path = tuple(step for step in part["loc"] if step != "[key]")
                if path not in empty:
                    self.complain(path, _said(model, part))
            return None
        return None if empty else read

    def duration_us(self, path: Sequence[int | str], text: str, *, or_none: bool = False) -> int:
        """A duration such as `10m` in microseconds; 0 where it is none, which is then noted.

        With `or_none`, `0s` says that there is to be none.
        """
        total = duration_us(text)
        if not total and not (or_none and is_zero(text)):
            self.complain(
                path,
                f"{text!r} is no duration above zero; write whole numbers with d, h, m or s, in"
                " this order, such as 10m or 1h30m, and at most 9999d",
            )
        return total

    def selector(self, path: Sequence[int | str], model: SelectorModel) -> Selector:
        """A label selector as a value."""
        requirements = [
            Requirement(key, Operator.IN, (value,)) for key, value in model.match_labels.items()
        ]
        for index, each in enumerate(model.match_expressions):
            at = (*path, "matchExpressions", index)
            operator = Operator(each.operator)
            if operator in (Operator.IN, Operator.NOT_IN) and not each.values:
                self.complain(at, f"{operator.value} needs values; write values: [...]")
            if operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST) and each.values:
                self.complain(at, f"{operator.value} takes no values; remove them")
            requirements.append(Requirement(each.key, operator, tuple(each.values)))
        return Selector(tuple(sorted(requirements, key=lambda r: (r.key, r.operator, r.values))))


def _empty(data: Any, path: tuple[int | str, ...] = ()) -> Iterator[tuple[int | str, ...]]:
    """Where nothing is written, as a path each; a document that is empty itself is not meant."""
    if data is None and path:
        yield path
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _empty(value, (*path, key))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _empty(value, (*path, number))


def _said(model: type[BaseModel], part: Any) -> str:
    """What pydantic found, with what is allowed there."""
    if part["type"] != "extra_forbidden":
        return in_words(part)
    known = _fields_at(model, part["loc"][:-1])
    near = difflib.get_close_matches(str(part["loc"][-1])[:80], known, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    return f"is not known here; {meant}Known are: {', '.join(known)}"


def _fields_at(model: Any, path: Sequence[int | str]) -> list[str]:
    """The fields of the part of `model` at `path`, as people write them."""
    for step in path:
        for name, info in model.model_fields.items():
            if step in (name, info.alias):
                model = next(_models_in(info.annotation), model)
    return [info.alias or name for name, info in model.model_fields.items()]


def _models_in(annotation: Any) -> Any:
    """The models that an annotation mentions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _models_in(argument)
