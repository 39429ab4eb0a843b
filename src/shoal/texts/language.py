"""The languages that sentences are made in."""

from enum import StrEnum


class Language(StrEnum):
    """A language, by its code."""

    ENGLISH = "en"
    CHINESE = "zh"
