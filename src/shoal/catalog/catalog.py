"""The whole catalogue as one value, and the questions that are put to it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from shoal.catalog import labels as label_rules
from shoal.catalog.accelerators import Accelerator, Profile, Source
from shoal.catalog.conditions import Site
from shoal.catalog.labels import NO_COUNTS, Clue, Identified
from shoal.catalog.names import Names
from shoal.catalog.rates import (
    RATE_RULE,
    Price,
    Rate,
    RateOverride,
    derived_rate,
    override_on,
    price_on,
)
from shoal.catalog.realisation import Realisation, Way, realise_all
from shoal.catalog.versions import Version
from shoal.model.modes import Mode


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Something that exists, that Shoal does not plan, and why."""

    name: str
    what: str
    reason: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Catalog:
    """Every fact, indexed.

    Attributes:
        accelerators: by name, in the order of the files.
        ways: every mechanism that provides a mode.
        cuda: rising pairs of (first driver, CUDA version that it brings).
        names: names that ask for devices.
        clues: labels and DRA attributes that name models.
        sources: by name.
        unsupported: what exists and is not planned.
        reference: the accelerator whose exchange rate is 1,000.
        rates: an organisation's own rates.
        prices: an organisation's prices.
        problems: what the files say that is allowed and yet doubtful, as sentences.
    """

    accelerators: Mapping[str, Accelerator]
    ways: tuple[Way, ...]
    cuda: tuple[tuple[Version, Version], ...]
    names: Names
    clues: tuple[Clue, ...]
    sources: Mapping[str, Source]
    unsupported: tuple[Unsupported, ...]
    reference: str
    rates: tuple[RateOverride, ...] = ()
    prices: tuple[Price, ...] = ()

    @property
    def models(self) -> tuple[Accelerator, ...]:
        """All accelerators, in the order of the files."""
        return tuple(self.accelerators.values())

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes that some way provides, in a fixed order."""
        return tuple(sorted({way.mode for way in self.ways}))

    def accelerator(self, name: str) -> Accelerator:
        """The accelerator of that name.

        Raises:
            KeyError: with the nearest names.
        """
        found = self.accelerators.get(name)
        if found is None:
            raise KeyError(f"no accelerator is named {name!r}{self._nearest(name)}")
        return found

    def select(self, text: str) -> tuple[Accelerator, ...]:
        """The accelerators that a request such as ``H100|A100-80GB`` means: names and groups.

        Raises:
            KeyError: for a word that is neither, with the nearest names.
        """
        chosen: dict[str, Accelerator] = {}
        for word in text.split("|"):
            found = [m for m in self.models if word == m.name or word in m.groups]
            if not found:
                raise KeyError(f"no accelerator or group is named {word!r}{self._nearest(word)}")
            chosen.update((model.name, model) for model in found)
        return tuple(model for name, model in self.accelerators.items() if name in chosen)

    def by_product(self, vendor: str, product: str) -> tuple[Accelerator, ...]:
        """The models that a driver reports by this name (spaces and hyphens are the same)."""
        clue = Clue("", vendor, label_rules.Reads.PRODUCT)
        return label_rules.identify_device("", {"": product}, (clue,), self.models)

    def identify(
        self, labels: Mapping[str, str], counts: Mapping[str, int] = NO_COUNTS
    ) -> Identified:
        """What a node's labels say about its devices; see :mod:`shoal.catalog.labels`."""
        return label_rules.identify(labels, self.clues, self.models, counts)

    def identify_device(
        self, driver: str, attributes: Mapping[str, str]
    ) -> tuple[Accelerator, ...]:
        """The models that a DRA device can be, by its driver and its attributes."""
        return label_rules.identify_device(driver, attributes, self.clues, self.models)

    def vendor_of_resource(self, resource: str) -> str:
        """Whose devices an extended resource asks for; empty: it is no device resource."""
        found = self.names.find(resource)
        return found[0].vendor if found else ""

    def offering(self, resource: str) -> tuple[tuple[Accelerator, Profile | None], ...]:
        """The accelerators that can stand behind an extended resource, with the profile it names.

        The profile is ``None`` for names that ask for whole devices or shares of them.
        """
        found = self.names.find(resource)
        if found is None:
            return ()
        name, _, kind = found
        own = [model for model in self.models if model.vendor == name.vendor]
        if kind == "profile":
            pairs = [(model, model.by_resource(resource)) for model in own]
            return tuple((model, profile) for model, profile in pairs if profile)
        if name.accelerators:
            wanted = set(name.accelerators)
            own = [m for m in own if m.name in wanted or wanted & set(m.groups)]
        return tuple((model, None) for model in own)

    def realise(
        self, accelerator: Accelerator, site: Site
    ) -> Mapping[Mode, tuple[Realisation, ...]]:
        """Every way of the accelerator's vendor on a node, by mode, the best answer first."""
        return realise_all(self.ways, accelerator, site, self.cuda)

    def rate(self, name: str, day: date) -> Rate | None:
        """The exchange rate of an accelerator on ``day``; ``None``: no rule gives one.

        An organisation's own rate of the accelerator, then of its groups, then the derived one.
        """
        model = self.accelerator(name)
        own = override_on(self.rates, (name, *model.groups), day)
        if own is not None:
            return own
        milli = derived_rate(model, self.accelerators[self.reference])
        return None if milli is None else Rate(milli, f"derived: {RATE_RULE} ({self.reference})")

    def price(self, name: str, day: date, pool: str = "") -> Price | None:
        """The organisation's price of an accelerator on ``day`` in ``pool``."""
        model = self.accelerator(name)
        return price_on(self.prices, (name, *model.groups), day, pool)

    def _nearest(self, word: str) -> str:
        known = {m.name for m in self.models} | {g for m in self.models for g in m.groups}
        folded = {name.lower(): name for name in sorted(known)}
        near = difflib.get_close_matches(word.lower()[:80], folded, n=3, cutoff=0.5)
        names = ", ".join(folded[name] for name in near)
        return f"; did you mean {names}?" if names else "; `shoal catalog list` shows all"
