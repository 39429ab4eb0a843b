"""The whole catalogue as one value, and the questions that are put to it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from types import MappingProxyType
from typing import Final

from shoal.catalog import labels as label_rules
from shoal.catalog import names as name_rules
from shoal.catalog.accelerators import Accelerator, Profile, Source, profile_of_suffix
from shoal.catalog.conditions import Site
from shoal.catalog.labels import NO_COUNTS, Clue, Identified
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

NO_PAIRS: Final[Mapping[str, str]] = MappingProxyType({})


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
    names: name_rules.Names
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
        """What a node's labels say about its devices; see `shoal.catalog.labels`."""
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
        name, part, kind = found
        own = [model for model in self.models if model.vendor == name.vendor]
        if kind == "profile":
            pairs = [(model, _profile(model, resource, part)) for model in own]
            return tuple((model, profile) for model, profile in pairs if profile)
        if name.accelerators:
            wanted = set(name.accelerators)
            own = [m for m in own if m.name in wanted or wanted & set(m.groups)]
        return tuple((model, None) for model in own)

    def read(
        self, limits: Mapping[str, str], annotations: Mapping[str, str] = NO_PAIRS
    ) -> name_rules.Ask | None:
        """What a container's ``limits`` and its pod's ``annotations`` ask for; see ``names.read``.

        A profile is given by the vendor's own name, and only profiles that exist are accepted.

        Raises:
            ValueError: with a sentence that says what to write.
        """
        ask = name_rules.read(self.names, limits, annotations)
        if ask is None or not ask.profile:
            return ask
        resource, part = next(
            (text, found[1])
            for text in limits
            if (found := self.names.find(text)) and found[2] == "profile"
        )
        offers = [p for m in self._asked(ask) if (p := _profile(m, resource, part)) is not None]
        if not offers:
            raise ValueError(
                f"{resource} names a partition profile that no accelerator of the catalogue has; "
                "`shoal catalog show ACCELERATOR` lists its profiles"
            )
        known = any(model.profile(ask.profile) for model in self._asked(ask))
        return ask if known else replace(ask, profile=offers[0].name)

    def write(self, ask: name_rules.Ask, system: str) -> tuple[dict[str, str], dict[str, str]]:
        """The (limits, annotations) by which ``system`` asks for ``ask``; see ``names.write``.

        Raises:
            ValueError: where that system has no name for a part of it.
        """
        if not ask.profile or system != "vendor":
            return name_rules.write(self.names, ask, system)
        found = [p for m in self._asked(ask) if (p := m.profile(ask.profile)) is not None]
        found.sort(key=lambda profile: profile.name != ask.profile)
        if found:
            return {found[0].resource: str(ask.devices)}, {}
        raise ValueError(f"no accelerator of {ask.vendor} has the partition profile {ask.profile}")

    def _asked(self, ask: name_rules.Ask) -> tuple[Accelerator, ...]:
        """The accelerators that an ask allows."""
        wanted = set(ask.accelerators)
        own = [model for model in self.models if model.vendor == ask.vendor]
        return tuple(m for m in own if not wanted or m.name in wanted or wanted & set(m.groups))

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


def _profile(model: Accelerator, resource: str, part: str) -> Profile | None:
    """The profile of ``model`` that a resource name with the varying ``part`` asks for."""
    return model.by_resource(resource) or model.profile(profile_of_suffix(part))
