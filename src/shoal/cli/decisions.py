"""`shoal decisions`: what a running `shoal up` decided, and what it decides now."""

import json
import sys
import time
from typing import Annotated

from cyclopts import Parameter

from shoal.cli.client import Api, Json
from shoal.cli.errors import UsageError
from shoal.cli.numbers import whole_number
from shoal.cli.on_socket import asked, local
from shoal.cli.output import Column, Form, Listing, View, plain, show
from shoal.cli.where import DEFAULT_WHERE, Where, socket_of
from shoal.texts.language import Language
from shoal.texts.screens import screen_text

AGAIN_S = 1.0
"""How long a broken stream waits before it goes on."""


def decisions(
    *,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="")] = False,
    last: Annotated[int, Parameter(name="--last", converter=whole_number)] = 20,
    output: Annotated[Form, Parameter(name=["--output", "-o"])] = "table",
    where: Where = DEFAULT_WHERE,
) -> None:
    """Show the last decisions, and with --follow every new one until interrupted.

    Parameters
    ----------
    follow
        Go on with new decisions. With -o json each is one line.
    last
        How many of the last decisions are shown.
    output
        A table, JSON, YAML, or the keys of the decisions.
    """
    if not 0 <= last <= 1000:
        raise UsageError(f"--last expects a number from 0 to 1000, found {last}.")
    path = socket_of(where, "kubectl get events")
    api = Api(path, where.language.value)
    page = asked(lambda: api.get("/decisions", limit=max(last, 1)))
    rows: list[Json] = page["items"] if last else []
    if not follow:
        show(
            lambda: Listing(rows, _COLUMNS, lambda row: str(row["key"])),
            View(output),
            where.language,
        )
        return
    for row in rows:
        _print(row, output)
    _follow(api, page["next"], output, where.language)


_COLUMNS = (
    Column("ID", lambda row: str(row["id"]), wide=True),
    Column("TIME", lambda row: local(row["at"])),
    Column("DECISION", lambda row: row["text"]),
)


def _follow(api: Api, after: str, output: Form, language: Language) -> None:
    """Print new decisions; where the connection breaks, go on behind the last one seen."""
    while True:
        sys.stdout.flush()
        for identity, kind, data in asked(
            lambda: api.events(f"/decisions/stream?after={after}", after)  # noqa: B023 - at once
        ):
            if kind == "gap":
                print(screen_text("gap", language), file=sys.stderr)
            elif kind == "decision":
                after = identity
                _print(data, output)
            sys.stdout.flush()
        time.sleep(AGAIN_S)


def _print(row: Json, output: Form) -> None:
    if output == "json":
        print(json.dumps(row, ensure_ascii=False))
    elif output == "yaml":
        import yaml

        print(f"---\n{yaml.safe_dump(row, sort_keys=False, allow_unicode=True)}", end="")
    elif output == "name":
        print(row["key"])
    else:
        print(f"{local(row['at'])}   {plain(row['text'])}")
