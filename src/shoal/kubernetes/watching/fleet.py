"""Nodes and their devices as events, and what the rest of the adapter asks about them."""

from collections.abc import Iterator

from shoal.catalog.catalog import Catalog
from shoal.core import events as ev
from shoal.core.world import World
from shoal.kubernetes.executing.claims import class_for
from shoal.kubernetes.executing.plans import DevicePin
from shoal.kubernetes.watching.asks import Ask
from shoal.kubernetes.watching.inventory import Identity, Inventory, take_inventory
from shoal.kubernetes.watching.truth import NODE, Truth
from shoal.kubernetes.wire.node import Node
from shoal.kubernetes.wire.resource import ResourceClaim, ResourceSlice
from shoal.model.request import Request
from shoal.model.workload import Placement, WorkloadType


class FleetView:
    """Keeps an inventory per node, and turns changes of it into events."""

    def __init__(self, truth: Truth, world: World, catalog: Catalog) -> None:
        self.inventories: dict[str, Inventory] = {}
        self._truth = truth
        self._world = world
        self._catalog = catalog
        self._dirty: dict[str, None] = {}
        self._leaf_of: dict[Identity, str] = {}
        """Devices that were ever seen: a claim may hold one that its driver no longer offers."""
        self._node_of: dict[str, str] = {}
        self._pins: dict[str, DevicePin] = {}
        self._masks: dict[str, frozenset[str]] = {}
        self._wanted_masks: set[str] = set()
        self._masks_dirty = False
        truth.nodes.subscribe(self._node_changed)
        truth.slices.subscribe(self._slice_changed)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        if node is not None:
            self._dirty[node.metadata.name] = None

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        for each in (old, new):
            if each is not None and each.spec.node_name:
                self._dirty[each.spec.node_name] = None

    @property
    def is_dirty(self) -> bool:
        """Whether `changes` has anything to look at."""
        return bool(self._dirty) or self._masks_dirty

    def changes(self, now_us: int) -> Iterator[ev.Event]:
        """The events that make the world's nodes and masks agree with the stores."""
        dirty, self._dirty = sorted(self._dirty), {}
        for name in dirty:
            node = self._truth.nodes.get(name)
            known = self.inventories.get(name)
            if node is None:
                if known is not None:
                    del self.inventories[name]
                    self._masks_dirty = True
                    yield ev.NodeLost(now_us, name)
                continue
            fresh = take_inventory(node, self._truth.slices.by(NODE, name), self._catalog)
            if fresh == known:
                continue
            self.inventories[name] = fresh
            self._masks_dirty |= known is None or known.offers != fresh.offers
            self._leaf_of.update(fresh.leaf_of)
            self._node_of.update(dict.fromkeys(fresh.pins, name))
            self._pins.update(fresh.pins)
            if known is None or fresh.node != known.node:
                yield ev.NodeSeen(now_us, fresh.node)
        if self._masks_dirty:
            self._masks_dirty = False
            yield from self._mask_changes(now_us)

    def _mask_changes(self, now_us: int) -> Iterator[ev.Event]:
        offering: dict[str, set[str]] = {}
        for name, inventory in self.inventories.items():
            for offer in inventory.offers:
                offering.setdefault(offer, set()).add(name)
        for mask in sorted(self._wanted_masks):
            sets = [offering.get(offer, set()) for offer in mask.split("+")]
            nodes = frozenset(set.intersection(*sets))
            if self._masks.get(mask) != nodes:
                self._masks[mask] = nodes
                yield ev.MaskSet(now_us, mask, tuple(sorted(nodes)))

    def want_mask(self, mask: str) -> None:
        """See to it that the world knows which nodes offer all of `mask` (joined by `+`)."""
        if mask and mask not in self._wanted_masks:
            self._wanted_masks.add(mask)
            self._masks_dirty = True

    # Questions --------------------------------------------------------------------------------

    def leaves_on(self, node: str) -> tuple[str, ...]:
        """The leaves that a node has now."""
        known = self.inventories.get(node)
        if known is None:
            return ()
        return tuple(leaf.name for device in known.node.devices for leaf in device.leaves)

    def leaves_of(self, claim: ResourceClaim) -> tuple[str, ...]:
        """The leaves that an allocated claim holds, as far as they were ever seen."""
        allocation = claim.status.allocation
        if allocation is None:
            return ()
        held = (
            self._leaf_of.get((each.driver, each.pool, each.device))
            for each in allocation.devices.results
            if not each.admin_access
        )
        return tuple(dict.fromkeys(leaf for leaf in held if leaf is not None))

    def node_of(self, leaf: str) -> str:
        """Where a leaf of a slice is; empty if it was never seen."""
        return self._node_of.get(leaf, "")

    def pin_of(self, leaf: str) -> DevicePin | None:
        """How a claim names a leaf; None for what only a device plugin counts."""
        return self._pins.get(leaf)

    def class_of(self, ask: Ask) -> str | None:
        """The DeviceClass by which a pod's devices are claimed; None if there is none."""
        classes = list(self._truth.classes.values())
        return class_for(classes, self._catalog, ask.resource, ask.vendor)

    def is_free(self, node: str, leaf: str) -> bool:
        """Whether nobody holds anything of a leaf in the world."""
        fleet = self._world.fleet
        row = fleet.row_of.get(node)
        if row is None or leaf not in fleet.leaves[row]:
            return False
        column = fleet.leaves[row].index(leaf)
        tenants = int(fleet.leaf_tenants[row, column])
        return 0 < tenants == int(fleet.leaf_tenants_free[row, column])

    def may_start(self, request: Request, type_: WorkloadType, placement: Placement) -> bool:
        """Whether a node takes new pods of such work and has the leaves of the placement."""
        listed = self.leaves_on(placement.node)
        if any(leaf not in listed for leaf in placement.leaves):
            return False
        row = self._world.fleet.row_of.get(placement.node)
        if row is None:
            return False
        shape = self._world.shape_of(request, type_)
        return bool(self._world.allowed_rows(shape)[row])
