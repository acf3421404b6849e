"""The snapshot against a model in plain Python, through any series of deltas."""

import itertools
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.scheduling.clusters import Box, agent, ask, box, put

from muster.core.resources import DeviceShare, Resources
from muster.scheduling.cluster.snapshot import OverCapacity, Snapshot

NAMES = ["a", "b", "c"]
boxes = st.builds(
    box,
    cpu=st.integers(0, 4),
    gib=st.just(4),
    gpus=st.integers(0, 3),
    status=st.sampled_from(["ALIVE", "ALIVE", "LOST"]),
    licence=st.integers(0, 1),
)
requests = st.builds(
    ask,
    cpu=st.integers(0, 3),
    gib=st.integers(0, 2),
    gpu=st.sampled_from([0, 0, 0.25, 0.5, 0.7, 1, 2]),
    licence=st.sampled_from([0, 0, 0, 1]),
)
devices = st.lists(
    st.builds(DeviceShare, st.integers(0, 3), st.sampled_from([250, 500, 1000])), max_size=2
).map(tuple)


@dataclass
class Machine:
    """The model's account of an agent."""

    box: Box
    held: list[tuple[Resources, tuple[DeviceShare, ...]]] = field(default_factory=list)

    def free(self) -> dict[str, int]:
        named = self.box.capacity.as_dict()
        named.pop("gpu", None)
        for resources, _ in self.held:
            for name, amount in resources.as_dict().items():
                if name != "gpu":
                    named[name] = named.get(name, 0) - amount
        return named

    def devices_free(self) -> dict[int, int]:
        milli = {device.index: 1000 for device in self.box.devices}
        for share in itertools.chain.from_iterable(shares for _, shares in self.held):
            milli[share.index] = milli.get(share.index, 0) - share.milli
        return milli

    def has_room(self, request: Resources) -> bool:
        free, milli = self.free(), list(self.devices_free().values())
        if self.box.status != "ALIVE" or min([*free.values(), *milli, 0]) < 0:
            return False
        asked = request.as_dict()
        gpu = asked.pop("gpu", 0)
        if any(free.get(name, 0) < amount for name, amount in asked.items()):
            return False
        if gpu >= 1000:
            return milli.count(1000) >= gpu // 1000
        return not gpu or max(milli, default=0) >= gpu


class SnapshotMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.snapshot = Snapshot("pool")
        self.model: dict[str, Machine] = {}

    @rule(name=st.sampled_from(NAMES), machine=boxes)
    def upsert(self, name: str, machine: Box) -> None:
        put(self.snapshot, name, machine)
        if name in self.model:
            self.model[name].box = machine
        else:
            self.model[name] = Machine(machine)

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        self.snapshot.remove_agent(agent(name))
        self.model.pop(name, None)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), request=requests, shares=devices, force=st.booleans())
    def take(
        self,
        data: st.DataObject,
        request: Resources,
        shares: tuple[DeviceShare, ...],
        force: bool,
    ) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        machine = self.model[name]
        before = machine.free(), machine.devices_free()
        machine.held.append((request, shares))
        asked = {each for each in request.as_dict() if each != "gpu"}
        free, milli = machine.free(), machine.devices_free()
        fits = all(free[each] >= 0 for each in asked) and all(
            milli[share.index] >= 0 for share in shares
        )
        try:
            self.snapshot.take(agent(name), request, shares, force=force)
        except OverCapacity:
            assert not force
            assert not fits
            machine.held.pop()
            assert (machine.free(), machine.devices_free()) == before
        else:
            assert force or fits

    @precondition(lambda self: any(machine.held for machine in self.model.values()))
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        names = sorted(name for name, machine in self.model.items() if machine.held)
        name = data.draw(st.sampled_from(names))
        held = self.model[name].held
        index = data.draw(st.integers(0, len(held) - 1))
        self.snapshot.give_back(agent(name), *held.pop(index))

    @rule(request=requests)
    def same_agents_fit(self, request: Resources) -> None:
        columns = self.snapshot.columns
        slots = columns.fitting(request).tolist()
        names = {self.snapshot.facts(slot).name for slot in slots}
        assert names == {name for name, each in self.model.items() if each.has_room(request)}

    @invariant()
    def amounts_agree(self) -> None:
        columns = self.snapshot.columns
        assert len(self.snapshot) == len(self.model)
        for name, machine in self.model.items():
            slot = self.snapshot.slot(agent(name))
            free = dict(zip(columns.dimensions, columns.free[slot].tolist(), strict=True))
            assert {k: v for k, v in free.items() if v} == {
                k: v for k, v in machine.free().items() if v
            }
            milli = dict(enumerate(columns.device_free[slot].tolist()))
            assert {k: v for k, v in milli.items() if v} == {
                k: v for k, v in machine.devices_free().items() if v
            }


TestSnapshotFollowsItsModel = SnapshotMachine.TestCase
TestSnapshotFollowsItsModel.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None
)
