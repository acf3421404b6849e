"""Invariants of pools and slices: machines are those of slices, and come and go for reasons that
hold. What providers really have is the farm's."""

from muster.control.pool.records import Pool, Slice
from muster.control.pool.states import PoolStatus
from muster.core.ids import AgentId, TokenId
from muster.core.reasons import Reason, ReasonCode
from muster.core.specs.placement import Operator
from muster.core.specs.pool import SLICE, PoolSpec
from muster.core.states import AgentStatus
from muster.core.states.slice import SLICE_TABLE, SliceStatus
from muster.providers.provider import MachineState
from muster.store.live import Live
from muster.store.records import LedgerKey
from muster.store.unit import NEW, Unit
from proving.swarm.invariants.placing import Placed
from proving.swarm.judge import Invariant, Judge
from proving.swarm.oracle.room import free_room, is_service, may_come_back, spec_of

_BY_OPERATOR = frozenset({ReasonCode.SLICE_DELETED_BY, ReasonCode.SLICE_POOL_DELETED})
_IN_FLIGHT = SLICE_TABLE.live - {SliceStatus.READY}


def _pool_of(live: Live, slice_: Slice) -> Pool | None:
    return next((each for each in live.of(Pool).values() if each.name == slice_.pool), None)


def _spec_of(live: Live, slice_: Slice) -> PoolSpec:
    """The spec by which a slice counts in ceilings: its pool's, as machines report it, or its own
    where that is of a former revision."""
    pool = _pool_of(live, slice_)
    is_present = pool is not None and pool.revision == slice_.revision
    return pool.effective if pool is not None and is_present else slice_.spec


class SlicesEndWithTheirMachines(Invariant):
    """Machines that a provider makes after it has deleted them, by a call that was on its way, and
    those that come back, are orphans, which are gone at rest."""

    says = "a slice ends once its provider has no machine of it, and is not made again"

    def between_steps(self) -> None:
        again = self.world.farm.again
        self.expect(not again, f"{again} were made after they had been deleted")

    def committed(self, unit: Unit) -> None:
        farm = self.world.farm
        for slice_ in unit.touched[Slice]:
            if slice_.status in SLICE_TABLE.terminal:
                left = [each.id for each in farm.of(slice_.id)]
                excused = slice_.id in farm.late | farm.returned
                self.expect(not left or excused, f"{slice_.id} has ended, and {left} are there")

    def at_rest(self) -> None:
        left = [(each.id, each.slice, each.pool) for each in self.world.farm.machines.values()]
        self.expect(not left, f"{left} are there, and nobody wants them")


class OnlyReadySlicesTakeWork(Invariant):
    says = "nothing begins on machines of a slice that is not READY, or is to be deleted"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._known: set[LedgerKey] = set()

    def committed(self, unit: Unit) -> None:
        live, known = unit.live, self._known
        self._known = {*live.ledger}
        for key in self._known - known:
            if is_service(live, key[0]):
                continue
            agent = live.agents[live.ledger[key].agent_id]
            if SLICE not in agent.fixed:
                continue
            slice_ = live.of(Slice).get(agent.fixed[SLICE])
            fits = slice_ is not None and slice_.status is SliceStatus.READY
            stays = slice_ is not None and (slice_.doomed is None or slice_.doomed_at == unit.now)
            self.expect(fits and stays, f"{key} was placed on {agent.name} of {slice_}")


class LimitsOfPoolsHold(Invariant):
    """Judged when slices are made, as operators may lower a limit below what there is."""

    says = "no slice is made beyond the limits of its pool and its group"

    def committed(self, unit: Unit) -> None:
        live = unit.live
        made = [each for each, stored in unit.touched[Slice].items() if stored == NEW]
        for name in {each.pool for each in made}:
            pool = _pool_of(live, next(each for each in made if each.pool == name))
            there = sum(each.pool == name for each in live.of(Slice).values())
            most = 0 if pool is None else pool.spec.max_slices
            self.expect(there <= most, f"pool {name} has {there} slices of {most}")
        for name in {each.group for each in made}:
            group = live.groups[name]
            slices = [each for each in live.of(Slice).values() if each.group == name]
            machines = sum(len(each.machines) for each in slices)
            specs = [_spec_of(live, each) for each in slices]
            gpus = sum(spec.slice_size * spec.machine.gpus for spec in specs)
            price = sum(spec.slice_size * spec.price for spec in specs)
            its = [_spec_of(live, each) for each in made if each.group == name]
            for has, limit, adds, what in (
                (machines, group.max_machines, True, "machines"),
                (gpus, group.max_gpus, any(each.machine.gpus for each in its), "devices"),
                (price, group.max_price, any(each.price for each in its), "for an hour"),
            ):
                within = limit is None or not adds or has <= limit + 1e-6
                self.expect(within, f"group {name} has {has} {what} of {limit}")


class DoomedForCause(Invariant):
    """Compared with the world when the reasons are told."""

    says = "a slice is deleted for a reason that holds"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._doomed: set[str] = set()

    def committed(self, unit: Unit) -> None:
        for slice_ in unit.touched[Slice]:
            if slice_.doomed is None or slice_.id in self._doomed:
                continue
            self._doomed.add(slice_.id)
            wrong = self._wrong(slice_, slice_.doomed, unit)
            self.expect(not wrong, f"{slice_.id} is to go, as {slice_.doomed.sentence()}: {wrong}")

    def _wrong(self, slice_: Slice, why: Reason, unit: Unit) -> str:
        live, spec, farm = unit.live, slice_.spec, self.world.farm
        agents = [each for each in live.agents.values() if each.fixed.get(SLICE) == slice_.id]
        stood_s, numbers = unit.now - slice_.status_changed_at, why.numbers()
        named = [each for each in farm.of(slice_.id) if each.name == numbers.get("machine")]
        match why.code:
            case ReasonCode.SLICE_IDLE_TOO_LONG:
                if any(live.allocations_on.get(each.id) for each in agents):
                    return "work runs on it"
                return "somebody holds it" if slice_.held_by else ""
            case ReasonCode.SLICE_CONSOLIDATED:
                return self._not_to_be_emptied(slice_, {each.id for each in agents}, unit)
            case ReasonCode.SLICE_DELETED_BY:
                return "" if slice_.id in self.scene.unwanted else "nobody asked for that"
            case ReasonCode.SLICE_POOL_DELETED:
                return "" if slice_.pool in self.scene.unwanted else "nobody asked for that"
            case ReasonCode.SLICE_NOT_MADE:
                return "" if unit.now - slice_.created_at >= spec.request_timeout else "too soon"
            case ReasonCode.SLICE_NOT_BOOTED:
                return "" if stood_s >= spec.boot_timeout else "too soon"
            case ReasonCode.SLICE_NOT_JOINED:
                return "" if stood_s >= spec.join_timeout else "too soon"
            case ReasonCode.SLICE_MACHINE_GONE:
                runs = any(each.state is MachineState.RUNNING for each in named)
                is_excused = not runs or slice_.id in farm.returned
                return "" if is_excused else "its provider has it"
            case ReasonCode.SLICE_MACHINE_DEAD:
                dead = [each for each in agents if each.name == numbers["machine"]]
                is_lost = any(each.status is AgentStatus.LOST for each in dead)
                return "" if is_lost else "it is heard"
            case ReasonCode.SLICE_TAKEN_AWAY:
                # It may have left since the list that told so.
                return "it stays" if any(each.leaves_at is None for each in named) else ""
            case ReasonCode.SLICE_OUTDATED:
                pool = _pool_of(live, slice_)
                is_old = pool is not None and slice_.revision < pool.revision
                return "" if is_old else "it is not outdated"
            case _:
                return "there is no such reason"

    def _not_to_be_emptied(self, slice_: Slice, its: set[AgentId], unit: Unit) -> str:
        """Why a slice with work may not be emptied for what that saves, by simple sums."""
        live, group = unit.live, unit.live.groups[slice_.group]
        rows = [row for id_ in its for row in live.allocations_on.get(id_, {}).values()]
        others = [
            each
            for each in live.agents.values()
            if each.group == group.name and each.id not in its and may_come_back(each)
        ]
        free = sum(room.cpu_milli for room in free_room(live, others).values())
        moved = sum(row.resources.cpu_milli for row in rows)
        if group.consolidate_after is None or slice_.ready_at is None:
            return "its group does not ask for that"
        if unit.now - slice_.ready_at < group.consolidate_after:
            return "it is too young"
        if slice_.held_by:
            return "somebody holds it"
        return "" if rows and moved <= free else f"{moved} of its work has {free} elsewhere"


class PlacedAsAsked(Invariant):
    """Judged by the labels that the pools of machines give these."""

    says = "work lies in one slice, and on machines of the labels, where it asks for that"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._placed = judge.of(Placed)

    def committed(self, unit: Unit) -> None:
        live = unit.live
        for session in self._placed.sessions:
            placement = spec_of(session).placement
            lies_on = {each.agent_id for each in session.kernels}
            agents = [live.agents[each] for each in lies_on if each is not None]
            if placement.together == SLICE:
                its = {each.fixed.get(SLICE) for each in agents}
                self.expect(len(its) == 1, f"{session.id} was placed in {its}")
            for asked in placement.constraints:
                has = [each.attributes.get(asked.attribute) for each in agents]
                meets = [(each in asked.values) is (asked.op is Operator.EQ) for each in has]
                self.expect(all(meets), f"{session.id} asks for {asked}, and was placed on {has}")


class TrippedPoolsStandStill(Invariant):
    says = "of a pool that stands still nothing is made or deleted by decision"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._tripped: set[str] = set()
        self._doomed: set[str] = set()

    def committed(self, unit: Unit) -> None:
        before, pools = self._tripped, unit.live.of(Pool).values()
        self._tripped = {each.name for each in pools if each.status is PoolStatus.TRIPPED}
        for slice_, stored in unit.touched[Slice].items():
            is_new = slice_.doomed is not None and slice_.id not in self._doomed
            if slice_.doomed is not None:
                self._doomed.add(slice_.id)
            if slice_.pool not in before & self._tripped:
                continue
            self.expect(stored != NEW, f"{slice_.id} is made")
            why = slice_.doomed
            if why is not None and why.code not in _BY_OPERATOR:
                was_up = slice_.ready_at is not None
                self.expect(not (is_new and was_up), f"{slice_.id} is to go: {why.sentence()}")
                goes = slice_.handed_at == unit.now
                self.expect(not goes, f"{slice_.id} is deleted: {why.sentence()}")


class TokensEnd(Invariant):
    """A slice has its secret, and one token, until it is READY or its machines are gone."""

    says = "machines join with the token of their slice, while it is made"

    def woke(self) -> None:
        controller = self.world.controller
        if controller is None or self.world.is_broken:
            return
        live = controller.store.live
        slices, tokens = live.of(Slice), live.accounts.join_tokens
        for slice_ in slices.values():
            token, is_coming = tokens.get(TokenId(slice_.id)), slice_.status in _IN_FLIGHT
            told = f"{slice_.id} is {slice_.status}"
            self.expect(bool(slice_.secret) == is_coming, f"{told}: its secret")
            self.expect((token is not None) == is_coming, f"{told}: its token")
        left = [each.id for each in tokens if each.fixed and each.id not in slices]
        self.expect(not left, f"{left} are tokens of slices that are gone")


class AgentsGoWithTheirSlice(Invariant):
    says = "agents of a slice that is gone are removed"

    def committed(self, unit: Unit) -> None:
        slices = unit.live.of(Slice)
        left = [
            each.name
            for each in unit.live.agents.values()
            if each.fixed.get(SLICE, "") not in {"", *slices}
            and each.status is not AgentStatus.REMOVED
        ]
        self.expect(not left, f"{left} are of slices that are gone")


class PoolsSettle(Invariant):
    says = "pools make and delete nothing while nothing changes"

    def at_rest(self) -> None:
        steadiness = self.scene.steadiness
        if steadiness is not None:
            before, later = steadiness
            self.expect(before == later, f"made and deleted: {before}, and soon after {later}")


INVARIANTS = (
    SlicesEndWithTheirMachines,
    OnlyReadySlicesTakeWork,
    LimitsOfPoolsHold,
    DoomedForCause,
    PlacedAsAsked,
    TrippedPoolsStandStill,
    TokensEnd,
    AgentsGoWithTheirSlice,
    PoolsSettle,
)
