"""A page of the documentation, as running text."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


class Page:
    """A page, whose line breaks and marks of quotation do not count."""

    def __init__(self, name: str) -> None:
        text = re.sub(r"^> ?", "", (DOCS / name).read_text(), flags=re.MULTILINE)
        self.text = " ".join(text.split())

    def says(self, *sentences: str) -> None:
        """Fail where one of these is not on the page."""
        for sentence in sentences:
            assert sentence in self.text, sentence
