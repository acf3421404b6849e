"""Bugs that the invariants of ``proving.swarm.invariants`` find."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
from proving.swarm.chance import Chance
from proving.swarm.invariants import (
    answers,
    attempts,
    barriers,
    clocks,
    commands,
    defects,
    dependencies,
    history,
    jobs,
    ledger,
    limits,
    notices,
    overtaken,
    placing,
    plugins,
    requests,
    rest,
    state,
    stored,
    tries,
)
from tests.proving.swarm.bugs.registry import finds

from muster.api import submissions
from muster.control.agent import hello
from muster.control.agent.desk import AgentDesk
from muster.control.agent.drain import DrainAgents
from muster.control.agent.leases import LeaseBook
from muster.control.engine import work as engine_work
from muster.control.engine.work import Work
from muster.control.inbox import Inbox
from muster.control.job import derive, settle
from muster.control.job.judge import TaskVerdict, judge
from muster.control.session import kernel_reports
from muster.control.session.cluster import state as cluster_state
from muster.control.session.cluster.state import ClusterState
from muster.control.session.cluster.workloads import agent_facts
from muster.control.session.handlers import barrier, start, terminate
from muster.control.session.handlers.promote import (
    DetectTermination,
    EndWithJob,
    EnforceTimeout,
)
from muster.control.session.handlers.schedule import ScheduleNewSessions
from muster.control.session.kernel_reports import KernelReports
from muster.core.clock import Resumed
from muster.core.ids import AgentId
from muster.core.owner import Principal
from muster.core.specs import ScalingGroup
from muster.core.specs.group import QueuePolicy
from muster.core.states import JobState
from muster.scheduling.accounting.usage import Quotas
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.validators import Concurrency, Dependencies, StartTime
from muster.store.entity import Repeat
from muster.store.history import History
from muster.store.records import Agent, Kernel, Session
from muster.store.unit import Unit
from muster.wire.messages import Stop


@finds(attempts.OneLiveAttempt, ledger.RoomIsGivenBackOnceGone, first=3)
def silent_agents_count_as_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaseBook, "revoke", lambda self, agent: True)


@finds(attempts.NoAttemptTwice, first=13)
def lost_kernels_that_may_have_run_are_placed_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kernel_reports, "may_have_run", lambda kernel: False)


@finds(attempts.Barrier)
def gangs_have_no_barrier(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(start, "is_closed", lambda session: False)


@finds(barriers.OpenBarrierLetsRun, first=10)
def kernels_that_miss_their_go_are_not_told_again(patch: pytest.MonkeyPatch) -> None:
    def note(kernel: Kernel, work: Work) -> None:
        if barrier.is_closed(kernel.session):
            barrier.note_ready(kernel, work)

    patch.setattr(hello, "note_ready", note)


@finds(defects.NoHandlerFailed)
def detection_of_ends_fails_at_times(patch: pytest.MonkeyPatch) -> None:
    promotes, numbers = DetectTermination.promotes, itertools.count()

    def badly(self: DetectTermination, record: Session) -> bool:
        if next(numbers) % 10 == 9:
            raise ZeroDivisionError
        return promotes(self, record)

    patch.setattr(DetectTermination, "promotes", badly)


@finds(defects.ControllerRests)
def settling_of_tasks_finds_something_to_do_each_time(patch: pytest.MonkeyPatch) -> None:
    follow = settle.SettleTasks.follow

    def again(self: settle.SettleTasks, record: Session, work: Work) -> None:
        follow(self, record, work)
        work.mark(record)

    patch.setattr(settle.SettleTasks, "follow", again)


@finds(dependencies.DependenciesAreMet, first=8)
def work_waits_for_no_other_work(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Dependencies, "validate", lambda *of: ())


@finds(dependencies.StartTimesAreKept)
def work_waits_for_no_start_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StartTime, "validate", lambda *of: ())


@finds(limits.TimeLimitsHold, first=10)
def nobody_enforces_time_limits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EnforceTimeout, "derive", lambda *of: None)


@finds(limits.WaitsEnd, first=17)
def nobody_enforces_scheduling_timeouts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ScheduleNewSessions, "timeout_s", lambda *of: None)


@finds(limits.DrainsEnd, first=133)
def nobody_has_work_leave_drained_machines(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DrainAgents, "follow", lambda *of: None)


@finds(limits.GraceIsGranted, first=3)
def kernels_are_stopped_without_their_grace(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(terminate, "Stop", lambda id_, number, grace_s, why: Stop(id_, number, 0.0, why))


@finds(attempts.Capacity)
def twice_the_room_is_placed(patch: pytest.MonkeyPatch) -> None:
    facts = agent_facts

    def doubled(*of: Any) -> Any:
        agent = facts(*of)
        more = replace(agent.capacity, cpu_milli=2 * agent.capacity.cpu_milli)
        return replace(agent, capacity=more)

    patch.setattr(cluster_state, "agent_facts", doubled)
    patch.setattr("muster.store.unit.overcommitted", lambda connection, granted: [])


@finds(attempts.Capacity, state.PlacementKnowsTheLedger, first=4)
def all_kernels_are_given_the_first_device(patch: pytest.MonkeyPatch) -> None:
    allocate = Unit.allocate

    def crowded(self: Unit, kernel: Kernel, agent: Agent, shares: Any, **how: Any) -> Any:
        first = tuple(replace(each, index=0) for each in shares[:1])
        return allocate(self, kernel, agent, first, **how)

    patch.setattr(Unit, "allocate", crowded)
    patch.setattr("muster.store.unit.overcommitted", lambda connection, granted: [])


@finds(attempts.Pauses)
def displaced_work_begins_at_once_though_nobody_makes_room(patch: pytest.MonkeyPatch) -> None:
    verdict = judge

    def again(attempt: Any, budget: Any) -> TaskVerdict:
        return verdict(attempt, replace(budget, max_retries_failure=100))

    patch.setattr(settle, "judge", again)
    draw = Chance.__call__
    patch.setattr(
        Chance, "__call__", lambda *of: replace(draw(*of), seconds=0.0, exit_code=1, creating_s=0)
    )


@finds(answers.RequestsAreAnswered, first=1)
def inputs_of_undone_wakes_are_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Inbox, "give_back", lambda *of: None)


@finds(answers.ReportsAreAcknowledged, first=1)
def some_acknowledgements_are_not_sent(patch: pytest.MonkeyPatch) -> None:
    deliver, numbers = AgentDesk.deliver, itertools.count()

    def badly(self: AgentDesk, agent: AgentId, letters: Any) -> None:
        if next(numbers) % 5 == 0:
            letters.acknowledged = None
        deliver(self, agent, letters)

    patch.setattr(AgentDesk, "deliver", badly)


@finds(overtaken.OvertakenOnlyRenew, first=240)
def commands_follow_no_commit_where_nothing_is_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine_work, "ORDERS", frozenset())


@finds(state.EndsStay)
def ended_jobs_are_told_of_as_running(patch: pytest.MonkeyPatch) -> None:
    told = Unit.events

    def events(unit: Unit) -> list[tuple[str, str, str]]:
        ended = [each for each in told(unit) if each[2] == JobState.SUCCEEDED]
        return told(unit) + [(kind, id_, str(JobState.RUNNING)) for kind, id_, _ in ended]

    patch.setattr(Unit, "events", events)


@finds(state.MirrorIsAsSql, first=1)
def changes_without_a_move_are_not_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unit, "touch", lambda self, record: None)


@finds(state.PlacementKnowsTheLedger)
def placement_does_not_hear_of_kernels_that_leave(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupState, "vacate", lambda *of: None)


@finds(state.PlacementKnowsPriorities, first=11)
def groups_do_not_hear_of_other_priorities(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupState, "reprioritise", lambda *of: None)


@finds(placing.StrictOrder, first=18)
def strict_groups_let_others_overtake(patch: pytest.MonkeyPatch) -> None:
    of = Policy.of
    lenient = staticmethod(
        lambda *args, **kw: replace(of(*args, **kw), queue=QueuePolicy.BEST_EFFORT)
    )
    patch.setattr(Policy, "of", lenient)


@finds(placing.RoomIsKept, first=18)
def nobody_waits_for_agents_that_reconnect(patch: pytest.MonkeyPatch) -> None:
    facts = agent_facts
    patch.setattr(cluster_state, "agent_facts", lambda *of: replace(facts(*of), returning=False))


@finds(placing.AgentsTakeWork, first=1)
def cordoned_agents_get_work(patch: pytest.MonkeyPatch) -> None:
    facts = agent_facts

    def willing(agent: Agent, group: ScalingGroup) -> Any:
        return replace(facts(agent, group), accepting=agent.connected)

    patch.setattr(cluster_state, "agent_facts", willing)


@finds(placing.NobodyIsForgotten, first=4)
def room_that_is_free_again_starts_no_pass(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ScheduleNewSessions, "is_due", lambda self, targets: bool(targets))


@finds(placing.QuotasHold, first=7)
def quotas_on_sessions_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Concurrency, "validate", lambda *of: ())
    patch.setattr(Concurrency, "allows", lambda self, workload, context, count: count)


@finds(placing.QuotasHold, first=9)
def limits_of_everybody_bind_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Quotas, "_merged", lambda self, *scope: self._specs.get(scope))


@finds(history.HistoryTellsAll, stored.StoredRowsAgree)
def every_tenth_row_is_told_twice(patch: pytest.MonkeyPatch) -> None:
    add, numbers = History.add, itertools.count()

    def doubled(self: History, *of: Any) -> int:
        if next(numbers) % 10 == 0:
            add(self, *of)
        return add(self, *of)

    patch.setattr(History, "add", doubled)


@finds(history.RepeatsMerge, first=2)
def refusals_for_different_reasons_merge(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Repeat, "is_of", lambda self, phase, *of: self.phase == phase)


@finds(history.RepeatsMerge)
def nothing_merges(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Repeat, "is_of", lambda *of: False)


@finds(history.CountsAreKept, first=1)
def counts_are_forgotten_once_a_status_changes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(History, "write_counts", lambda self, record: setattr(record, "repeats", ()))


@finds(tries.TriesAreCharged, first=3)
def failures_are_charged_twice(patch: pytest.MonkeyPatch) -> None:
    charge = Work.charge_try

    def twice(self: Work, record: Any, policy: Any) -> bool:
        record.tries += 1
        return charge(self, record, policy)

    patch.setattr(Work, "charge_try", twice)


@finds(jobs.EndsAreWhole, first=7)
def tasks_of_ended_jobs_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(derive, "kill_tasks", lambda *of, **named: None)


@finds(jobs.EndsAreWhole, first=31)
def sessions_of_ended_jobs_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EndWithJob, "derive", lambda *of: None)


@finds(requests.AcceptedOnce, first=17)
def repeated_submissions_are_new_ones(patch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()
    patch.setattr(submissions, "submission_key", lambda *of: f"{next(numbers)}")


@finds(requests.AnsweredByRole, first=1)
def everything_is_everybodys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Principal, "is_admin", True)


@finds(notices.EndsAreTold, first=42)
def ended_work_is_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unit, "has_left", lambda *of: False)


@finds(commands.CommandsAreNeeded, first=3)
def stops_are_repeated_without_a_pause(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(terminate, "stop_again_at", lambda kernel, sent_at: sent_at + 0.1)


@finds(ledger.LedgerIsHeld, rest.RoomReturns, first=5)
def ends_of_old_generations_are_not_heard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KernelReports, "_apply_old", lambda *of: None)


@finds(plugins.FailedPluginsServeNoMore, first=1)
def plugins_that_fail_are_not_named(patch: pytest.MonkeyPatch) -> None:
    without = ClusterState._without
    patch.setattr(ClusterState, "_without", lambda *of: replace(without(*of), refused=()))


@finds(rest.WorkEnds, first=1)
def nothing_is_retried_or_ended_after_a_loss(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaseBook, "revoke", lambda self, agent: False)


@finds(clocks.LeapsCountForNothing)
def time_of_day_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    def resumed(
        anchor: object, last_commit_s: float, time_of_day_s: float, *boot: object
    ) -> Resumed:
        return Resumed(max(time_of_day_s, last_commit_s), True)

    monkeypatch.setattr("muster.store.store.resumed", resumed)
