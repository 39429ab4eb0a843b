"""`shoal catalog`: what hardware can do, where each fact was read, and what a fleet can offer."""

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from shoal.cli.errors import CannotError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.catalog.accelerators import Accelerator, Profile
    from shoal.catalog.catalog import Catalog
    from shoal.catalog.realisation import Way

app = App(
    name="catalog",
    help="What accelerators, drivers and channels can really do, with a source for every fact.",
)

Extra = Annotated[list[Path] | None, Parameter(name="--catalog", negative="")]
Format = Annotated[Literal["table", "json"], Parameter(name=["--output", "-o"])]

_UNITS = {
    "memory_gb": "GB nominal",
    "memory_mib": "MiB as the driver reports",
    "reserved_mib": "MiB kept by the driver",
    "compute_units": "compute units",
    "bandwidth_gbytes_per_s": "GB/s memory bandwidth",
    "fp16_gflops": "GFLOPS dense FP16",
}


@app.command(name="list")
def list_(*, vendor: str | None = None, catalog: Extra = None, output: Format = "table") -> None:
    """List the accelerators.

    Parameters
    ----------
    vendor
        Only those of this vendor: nvidia, amd, ascend or one of your files.
    catalog
        A file or folder of your own that extends the catalogue; may be repeated.
    output
        A table for people, or JSON.
    """
    held = _load(catalog)
    models = [model for model in held.models if vendor in (None, model.vendor)]
    if not models:
        vendors = ", ".join(sorted({model.vendor for model in held.models}))
        raise UsageError(f"no accelerator is of {vendor!r}; vendors are {vendors}.")
    if output == "json":
        _json([_accelerator(held, model) for model in models])
        return
    day = _today()
    rows = [("NAME", "VENDOR", "MEMORY MiB", "UNITS", "PARTITIONS", "RATE", "GROUPS")]
    for model in models:
        rate = held.rate(model.name, day)
        rows.append(
            (
                model.name,
                model.vendor,
                _known(model.memory_mib),
                _known(model.compute_units),
                _partitions(model),
                f"{rate.milli / 1000:.3f}" if rate else "-",
                ", ".join(model.groups),
            )
        )
    _table(rows)


@app.command
def show(name: str, *, catalog: Extra = None, output: Format = "table") -> None:
    """Show all that is known of an accelerator, with the source of each fact.

    Parameters
    ----------
    name
        An accelerator, a group (A100), or several joined by |.
    catalog
        A file or folder of your own that extends the catalogue; may be repeated.
    output
        Text for people, or JSON.
    """
    held = _load(catalog)
    models = _select(held, name)
    if output == "json":
        _json([_accelerator(held, model) for model in models])
        return
    for index, model in enumerate(models):
        if index:
            print()
        _show(held, model)


@app.command
def check(*paths: Path, catalog: Extra = None) -> None:
    """Check the catalogue together with files of your own; says what is wrong, and where.

    Parameters
    ----------
    paths
        Files or folders; without any, only Shoal's own facts are checked.
    catalog
        The same, as the other commands take them.
    """
    held = _load((*paths, *(catalog or ())))
    facts = sum(len(model.sources) for model in held.models)
    print(
        f"{len(held.accelerators)} accelerators, {facts} facts from {len(held.sources)} sources, "
        f"{len(held.ways)} ways to share, {len(held.names.every)} names: all well."
    )
    if any(price.example for price in held.prices):
        print("prices: example figures are among them; replace them before anyone is charged.")


@app.command
def explain(thing: str, *, catalog: Extra = None) -> None:
    """Explain a name: a resource, a node label, a mode, a way, an accelerator or one of its facts.

    Parameters
    ----------
    thing
        Such as nvidia.com/mig-1g.10gb, nvidia.com/gpumem=3000, nvidia.com/gpu.product=Tesla-T4,
        mps, hami, A100, A100-SXM4-80GB.memory_mib.
    catalog
        A file or folder of your own that extends the catalogue; may be repeated.
    """
    held = _load(catalog)
    key, found, value = thing.partition("=")
    labels = {clue.key for clue in held.clues if not clue.driver}
    if key in labels and found:
        _explain_label(held, key, value)
    elif held.names.find(key):
        _explain_resource(held, key, value if found else "1")
    elif thing in {thing.name for thing in held.unsupported}:
        _explain_unsupported(held, thing)
    elif ways := [way for way in held.ways if thing in (way.name, way.mode.name, *_aliases(way))]:
        for index, way in enumerate(ways):
            if index:
                print()
            _explain_way(held, way)
    elif "." in thing and thing.rpartition(".")[0] in held.accelerators:
        _explain_fact(held, *thing.rsplit(".", 1))
    elif "/" in key:
        raise UsageError(f"{key!r} is no resource, annotation or label that the catalogue knows.")
    else:
        for model in _select(held, thing):
            _show(held, model)


@app.command
def matrix(
    *,
    fleet: Annotated[Path, Parameter(name="--fleet")],
    with_: Annotated[list[str] | None, Parameter(name="--with", negative="")] = None,
    catalog: Extra = None,
    output: Annotated[
        Literal["markdown", "html", "json"], Parameter(name=["--output", "-o"])
    ] = "markdown",
) -> None:
    """Print which modes a fleet can offer and what each guarantees, and what a change would add.

    Parameters
    ----------
    fleet
        YAML file that describes groups of equal nodes; the documentation has the form.
    with_
        A change to try, such as driver=615.10, kernel=6.14, component.NAME=VERSION or
        config.NAME.KEY=VALUE; with GROUP: before it, for that group only. May be repeated.
    catalog
        A file or folder of your own that extends the catalogue; may be repeated.
    output
        Markdown, a page that needs no network (HTML), or JSON.
    """
    from shoal.catalog.load.fleet import load_fleet
    from shoal.catalog.matrix import changed, compare
    from shoal.catalog.matrix import matrix as rows_of
    from shoal.cli.catalog_matrix import as_html, as_json, as_markdown

    held = _load(catalog)
    with _problems_told():
        groups = load_fleet(fleet, held)
    before = rows_of(held, groups)
    changes = _changes(with_ or ())
    try:
        after = changed(groups, changes)
    except ValueError as error:
        raise UsageError(f"{error}.") from None
    differences = compare(before, rows_of(held, after)) if changes else None
    if output == "json":
        _json(as_json(before, with_ or (), differences))
    elif output == "html":
        print(as_html(held, before, with_ or (), differences))
    else:
        print(as_markdown(held, before, with_ or (), differences))


def _changes(words: Iterable[str]) -> dict[str, list[str]]:
    changes: dict[str, list[str]] = {}
    for word in words:
        group, found, change = word.partition(":")
        if not found or "=" in group:
            group, change = "", word
        changes.setdefault(group, []).append(change)
    return changes


def _load(extra: Iterable[Path] | None) -> "Catalog":
    from shoal.catalog.load import load_catalog

    with _problems_told():
        return load_catalog(extra or ())


@contextmanager
def _problems_told() -> "Iterator[None]":
    """Print each problem of the files on a line of its own, then fail with their number."""
    from shoal.catalog.load import CatalogError

    try:
        yield
    except CatalogError as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        count = len(error.problems)
        raise CannotError(f"{count} problem{'s' * (count != 1)} in the files.") from None


def _select(held: "Catalog", text: str) -> "tuple[Accelerator, ...]":
    try:
        return held.select(text)
    except KeyError as error:
        sentence: str = error.args[0]
        raise UsageError(sentence if sentence.endswith("?") else f"{sentence}.") from None


def _show(held: "Catalog", model: "Accelerator") -> None:
    print(f"{model.name}   {model.vendor}   {', '.join(model.groups)}".rstrip())
    rows: list[Sequence[str]] = []
    for fact, sources in model.sources.items():
        value = _fact(model, fact)
        rows.append((f"  {fact}", value, _UNITS.get(fact, ""), ", ".join(sources)))
    usable = model.usable_mib()
    rows.append(("  usable_mib", _known(usable), "MiB for tenants before deductions", "derived"))
    rate = held.rate(model.name, _today())
    rows.append(
        (
            "  rate",
            f"{rate.milli / 1000:.3f}" if rate else "-",
            f"of {held.reference}",
            _basis(rate),
        )
    )
    _table(rows)
    if model.profiles:
        print("  profiles")
        _table(_profile_rows(model))
    for note in model.notes:
        print(f"  note: {note}")


def _profile_rows(model: "Accelerator") -> list[Sequence[str]]:
    geometry = model.geometry
    rows: list[Sequence[str]] = [
        ("    NAME", "COMPUTE", "MEMORY", "MiB", "STARTS", "MOST", "CHARGE", "RESOURCE")
    ]
    if geometry is None:
        return rows
    for profile in model.profiles:
        shape = profile.shape
        starts = geometry.starts(shape)
        placed = ",".join(str(start) for start in starts if start >= 0)
        rows.append(
            (
                f"    {profile.name}",
                f"{shape.compute}/{geometry.compute}",
                f"{shape.memory}/{geometry.memory}",
                _known(profile.memory_mib),
                placed or ("-" if profile.plannable else "not published"),
                str(geometry.most(shape)),
                str(geometry.charge_units(shape)),
                profile.resource,
            )
        )
    return rows


def _explain_fact(held: "Catalog", name: str, fact: str) -> None:
    model = held.accelerators[name]
    sources = model.sources.get(fact)
    if sources is None:
        known = ", ".join(model.sources)
        raise UsageError(f"no source gives {fact} of {name}; known are {known}.")
    print(f"{name}.{fact} = {_fact(model, fact)} {_UNITS.get(fact, '')}".rstrip())
    _sources(held, sources)


def _explain_resource(held: "Catalog", resource: str, value: str) -> None:
    found = held.names.find(resource)
    if found is None:
        return
    name = found[0]
    limits: dict[str, str] = {}
    annotations: dict[str, str] = {}
    (annotations if name.place == "annotation" else limits)[resource] = value
    try:
        ask = held.read(limits, annotations)
    except ValueError as error:
        print(f"{resource}={value} is refused: {error}.")
        return
    if ask is None:
        return
    parts = [f"{ask.devices} device{'s' * (ask.devices != 1)} of {ask.vendor}"]
    if ask.accelerators:
        parts.append(f"of {'|'.join(ask.accelerators)}")
    if ask.profile:
        parts.append(f"each a partition {ask.profile}")
    for amount, words in (
        (ask.memory_mib, "MiB of memory"),
        (ask.memory_percent, "percent of memory"),
        (ask.compute_percent, "percent of compute"),
    ):
        if amount is not None:
            parts.append(f"{amount} {words}")
    print(f"{resource}={value} asks for {', '.join(parts)} (a name of {ask.system}).")
    for note in ask.notes:
        print(f"  {note}.")
    offers = held.offering(resource)
    for model, profile in offers:
        size = "" if profile is None else f": {_size(profile)}"
        print(f"  {model.name}{size}")
    _sources(held, name.sources)


def _explain_label(held: "Catalog", key: str, value: str) -> None:
    answer = held.identify({key: value})
    names = ", ".join(model.name for model in answer.accelerators) or "no accelerator"
    print(f"{key}={value} means {names}.")
    if answer.profile:
        print(f"  Its devices are cut into {answer.profile}.")
    for caution in answer.cautions:
        print(f"  {caution}.")
    clue = next(clue for clue in held.clues if clue.key == key and not clue.driver)
    _sources(held, clue.sources)


def _explain_unsupported(held: "Catalog", name: str) -> None:
    thing = next(thing for thing in held.unsupported if thing.name == name)
    print(f"{thing.what}: not supported.")
    print(f"  {thing.reason}")
    _sources(held, thing.sources)


def _explain_way(held: "Catalog", way: "Way") -> None:
    print(f"{way.name}: mode {way.mode.name} on {way.vendor} by {way.channel.word}")
    print(f"  memory {way.memory}, compute {way.compute}, fault {way.fault}")
    for requirement in way.requires:
        print(f"  needs {' or '.join(str(condition) for condition in requirement)}")
    for limit in way.limits:
        where = " and ".join(str(condition) for one in limit.when for condition in one)
        print(f"  at most {limit.tenants} tenants" + (f" where {where}" if where else ""))
    if way.single:
        print("  one share per pod")
    print(f"  to switch, {way.idle.value} must be idle: {way.switch}")
    for caution in way.cautions:
        print(f"  caution: {caution}")
    _sources(held, way.sources)


def _sources(held: "Catalog", names: Iterable[str]) -> None:
    for name in names:
        source = held.sources[name]
        print(f"  source {name}: {source.what}; {source.url}; read {source.read}")


def _accelerator(held: "Catalog", model: "Accelerator") -> dict[str, Any]:
    rate = held.rate(model.name, _today())
    geometry = model.geometry
    return {
        "name": model.name,
        "vendor": model.vendor,
        "groups": list(model.groups),
        "facts": {
            fact: {"value": _plain(model, fact), "sources": list(sources)}
            for fact, sources in model.sources.items()
        },
        "usable_mib": model.usable_mib(),
        "rate_milli": rate.milli if rate else None,
        "rate_basis": _basis(rate),
        "profiles": [
            {
                "name": profile.name,
                "resource": profile.resource,
                "memory_mib": profile.memory_mib,
                "compute_units": profile.compute_units,
                "compute": profile.shape.compute,
                "memory": profile.shape.memory,
                "starts": [start for start in geometry.starts(profile.shape) if start >= 0],
                "most": geometry.most(profile.shape),
                "charge_units": geometry.charge_units(profile.shape),
                "obstacle": profile.obstacle or None,
            }
            for profile in (model.profiles if geometry else ())
            if geometry
        ],
        "notes": list(model.notes),
    }


def _plain(model: "Accelerator", fact: str) -> Any:
    if fact == "partitioning":
        return model.geometry.name if model.geometry else None
    value = getattr(model, fact)
    if fact == "compute_capability":
        return ".".join(str(number) for number in (*value.numbers, 0)[:2])
    if fact == "links":
        return [
            {
                "kind": link.kind,
                "gbytes_per_s": link.gbytes_per_s,
                "peers": link.peers,
                "bridge": link.bridge,
            }
            for link in value
        ]
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, int) else str(value)


def _fact(model: "Accelerator", fact: str) -> str:
    value = _plain(model, fact)
    if fact == "links":
        return ", ".join(
            f"{link['kind']} {link['gbytes_per_s']} GB/s{' by a bridge' if link['bridge'] else ''}"
            for link in value
        )
    return ", ".join(value) if isinstance(value, list) else str(value)


def _aliases(way: "Way") -> tuple[str, ...]:
    from shoal.model.modes import MODE_ALIASES

    return tuple(alias for alias, name in MODE_ALIASES.items() if name == way.mode.name)


def _partitions(model: "Accelerator") -> str:
    if not model.profiles:
        return "-"
    plannable = sum(profile.plannable for profile in model.profiles)
    return str(plannable) if plannable else "not plannable"


def _size(profile: "Profile") -> str:
    if profile.memory_mib is None:
        return "size not published"
    return f"{profile.memory_mib} MiB"


def _basis(rate: Any) -> str:
    return "a specification lacks, and none is set" if rate is None else str(rate.basis)


def _known(value: int | None) -> str:
    return "-" if value is None else str(value)


def _today() -> date:
    return datetime.now(UTC).date()


def _table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def _json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))
