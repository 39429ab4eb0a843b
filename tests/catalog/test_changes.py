"""Devices under random creation and destruction of instances, on both axes."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shoal.catalog.geometry import Geometry, Instance, Kind
from shoal.catalog.load import load_catalog

GEOMETRIES = {
    model.geometry.name: model.geometry for model in load_catalog().models if model.geometry
}
PLACED = [geometry for geometry in GEOMETRIES.values() if geometry.kind is Kind.PLACED]
COUNTED = [geometry for geometry in GEOMETRIES.values() if geometry.kind is Kind.COUNTED]


class Device(RuleBasedStateMachine):
    """A device on which instances come and go; a model of bits stands beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.geometry: Geometry | None = None
        self.live: list[Instance] = []

    @precondition(lambda self: self.geometry is None)
    @rule(geometry=st.sampled_from(PLACED))
    def begin(self, geometry: Geometry) -> None:
        self.geometry = geometry

    @precondition(lambda self: self.geometry is not None)
    @rule(data=st.data())
    def create(self, data: st.DataObject) -> None:
        geometry = self.geometry
        assert geometry is not None
        shape = data.draw(st.sampled_from(geometry.shapes))
        start = data.draw(st.integers(-1, geometry.memory))
        possible = start in geometry.openings(self.live, shape.name)
        assert possible == self.allowed(shape.name, start)
        if possible:
            self.live.append(Instance(shape.name, start))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def destroy(self, data: st.DataObject) -> None:
        self.live.remove(data.draw(st.sampled_from(self.live)))

    def allowed(self, name: str, start: int) -> bool:
        """The published rules, written another way: bit masks, sums and counts."""
        geometry = self.geometry
        assert geometry is not None
        shape = geometry.shape(name)
        if start < 0 or start % shape.memory or start + shape.memory > geometry.memory:
            return False
        new = [*self.live, Instance(name, start)]
        shapes = [geometry.shape(instance.shape) for instance in new]
        units = slices = 0
        for instance, each in zip(new, shapes, strict=True):
            unit_mask = ((1 << each.memory) - 1) << instance.start
            slice_mask = ((1 << each.compute) - 1) << (instance.start // geometry.units_per_slice)
            if units & unit_mask or slices & slice_mask or slice_mask >> geometry.compute:
                return False
            units |= unit_mask
            slices |= slice_mask
        media = [each for each in shapes if each.attributes & {"me", "me.all"}]
        everything = [each for each in shapes if "me.all" in each.attributes]
        others = [each for each in shapes if "no-me" not in each.attributes]
        old_driver = {"3g", "4g"} <= {each.name for each in shapes} and geometry.name == "mig-7"
        return not (len(media) > 1 or (everything and len(others) > 1) or old_driver)

    @invariant()
    def nothing_is_ever_outside_the_rules(self) -> None:
        if self.geometry is None:
            return
        assert self.geometry.obstacle(self.live) is None
        compute, memory = self.geometry.stranded(self.live)
        assert compute >= 0
        assert memory >= 0


TestDevice = Device.TestCase


@settings(max_examples=60)
@given(st.data())
def test_counted_devices_stay_within_their_totals_under_random_changes(data: st.DataObject) -> None:
    geometry = data.draw(st.sampled_from(COUNTED))
    live: list[Instance] = []
    for destroys in data.draw(st.lists(st.booleans(), max_size=30)):
        if live and destroys:
            live.remove(data.draw(st.sampled_from(live)))
            continue
        name = data.draw(st.sampled_from(geometry.shapes)).name
        if geometry.openings(live, name):
            live.append(Instance(name))
        shapes = [geometry.shape(instance.shape) for instance in live]
        assert sum(shape.compute for shape in shapes) <= geometry.compute
        assert sum(shape.memory for shape in shapes) <= geometry.memory
