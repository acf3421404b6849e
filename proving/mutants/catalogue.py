"""The deliberate bugs. Each text is in its file once, which a test checks, so that the list cannot
rot; whoever changes such a line changes the bug with it, or drops it with a reason."""

from proving.mutants.deployments import DEPLOYMENTS
from proving.mutants.health import HEALTH
from proving.mutants.ledger import LEDGER
from proving.mutants.mutant import Mutant
from proving.mutants.pools import POOLS
from proving.mutants.queues import QUEUES
from proving.mutants.reasons import REASONS
from proving.mutants.recovery import RECOVERY
from proving.mutants.times import TIMES
from proving.mutants.wakes import WAKES

AGENT = "control/agent"
JOB = "control/job"
SESSION = "control/session"
HANDLERS = f"{SESSION}/handlers"
SCHEDULING = "scheduling"

GENERATIONS = (
    Mutant(
        "the generation of reports is ignored",
        f"{SESSION}/kernel_reports.py",
        "            and kernel.generation == report.generation\n",
        "",
        "a report of an old generation changes only that generation's row",
        scenario="end_told_twice",
    ),
    Mutant(
        "the generation is not raised",
        f"{SESSION}/lifecycle.py",
        "        kernel.generation += 1\n",
        "",
        "a kernel that goes back to the queue has a new generation",
        scenario="start_told_late",
    ),
    Mutant(
        "the number of an attempt is used again",
        f"{JOB}/expand.py",
        "            task.attempt += 1\n",
        "",
        "no attempt runs twice",
    ),
    Mutant(
        "an attempt that may have run goes back to the queue",
        f"{SESSION}/lifecycle.py",
        "    return session.barrier_opened_at is not None or session.tally.among(_BEGUN) > 0\n",
        "    return False\n",
        "no attempt runs twice",
    ),
    Mutant(
        "a lost kernel that was told to run is placed anew",
        f"{HANDLERS}/barrier.py",
        "    return counts and kernel.status in _TOLD_TO_RUN\n",
        "    return False\n",
        "no attempt runs twice",
    ),
    Mutant(
        "the next attempt begins while the last one may run",
        f"{JOB}/expand.py",
        "gone = task.kernel_id is None or task.kernel_id not in work.live.allocations_of",
        "gone = True",
        "a task has one live attempt at most",
        scenario="outlives_its_session",
    ),
    Mutant(
        "the next generation begins while the last one may run",
        f"{SESSION}/cluster/state.py",
        "            state.submit(waiting, aside=bool(remains))\n",
        "            state.submit(waiting)\n",
        "a task has one live attempt at most",
        scenario="start_told_late",
    ),
)

COMMITS = (
    Mutant(
        "messages are sent before the commit",
        "control/plane.py",
        "            self._store.commit(work.unit)\n",
        "            self._perform(work)\n            work.effects.clear()\n"
        "            self._store.commit(work.unit)\n",
        "nothing leaves before it is committed",
    ),
    Mutant(
        "submissions are answered before the commit",
        "control/inbox.py",
        "            work.emit(Reply(self, self.action(work, parts), None))\n",
        "            self.answer(self.action(work, parts), None)\n",
        "work that was accepted is not lost",
    ),
    Mutant(
        "reports are acknowledged before the commit",
        f"{AGENT}/desk.py",
        "        work.emit(TellAgent(agent.id, Acknowledge(batch.last_seq)))\n",
        "        self.link.send(agent.id, Acknowledge(batch.last_seq))\n",
        "an agent forgets a report only once it is committed",
    ),
    Mutant(
        "the mirror is kept after a failed commit",
        "control/plane.py",
        '        self._broken = True\n        why = f"the change could not be stored: {error}"\n',
        '        why = f"the change could not be stored: {error}"\n',
        "the mirror is as SQL is",
    ),
    Mutant(
        "inputs of a lost race are dropped",
        "control/plane.py",
        "            case LostRace(losers=losers) if self._races.lost(losers, now):\n",
        "            case LostRace(losers=losers) if self._races.lost(losers, now) or True:\n"
        "                inputs = []\n",
        "an input is taken, or its sender is told that it is not",
    ),
    Mutant(
        "keys of submissions are not stored",
        "api/submissions.py",
        "            work.unit.also_rows(*remember(key, accepted.id, now))\n",
        "",
        "work that was accepted is there once, however often it is handed in",
    ),
    Mutant(
        "the compare-and-set is dropped",
        "store/unit.py",
        "        if before not in expected:\n            return False\n",
        "",
        "a record that somebody else has moved is left alone",
    ),
    Mutant(
        "the fence is not checked",
        "store/fence.py",
        "        if (row.epoch, row.commits) != (self._epoch, self._commits):\n"
        "            raise Fenced(Holder.of(row)) if row.epoch > self._epoch else WentBack()\n",
        "",
        "one controller writes, however many believe that they may",
    ),
    Mutant(
        "the fence is not taken",
        "store/fence.py",
        "        self._epoch = max(row.epoch + 1, int(ours.since * 1000))\n",
        "        self._epoch = row.epoch\n",
        "one controller writes, however many believe that they may",
    ),
    Mutant(
        "the compare-and-set in SQL is dropped",
        "store/unit.py",
        "(written := mapping.update.execute(connection, old)) != len(old):",
        "mapping.update.execute(connection, old) < 0 and (written := 0) == 0:",
        "a record that somebody else has moved is left alone",
        beyond="it is the second wall: behind the fence nobody else writes",
    ),
    Mutant(
        "a moved status is not written",
        "store/unit.py",
        "        self.touched[kind].setdefault(record, before)\n        record.status = to\n",
        "        record.status = to\n",
        "the mirror is as SQL is",
    ),
)

AGREEMENT = (
    Mutant(
        "Hello does not repeat lost starts",
        f"{AGENT}/hello.py",
        "                send_starts(kernel.session, [kernel], work, self._cluster)\n",
        "                pass\n",
        "a command that was lost with a stream is sent again",
    ),
    Mutant(
        "Hello does not stop kernels that nobody wants",
        f"{AGENT}/hello.py",
        '                work.emit(TellAgent(agent.id, Stop(*key, grace_s, "not wanted")))\n',
        "                pass\n",
        "no kernel runs that nobody wants",
    ),
    Mutant(
        "Hello does not free rows that its agent has forgotten",
        f"{AGENT}/hello.py",
        "                if key not in held:\n                    work.unit.release(key)\n",
        "                if key not in held:\n",
        "room that is proven free is given back",
    ),
    Mutant(
        "a reboot is not noticed",
        f"{AGENT}/hello.py",
        "        rebooted = bool(agent.boot_id) and agent.boot_id != hello.boot_id\n",
        "        rebooted = False\n",
        "kernels of an earlier boot are gone, as of when that boot was last heard",
        scenario="ended_before_reboot",
    ),
    Mutant(
        "a kernel that its agent has forgotten is kept",
        f"{AGENT}/hello.py",
        "        elif kernel.status in _ON_AGENT and held is None:\n",
        "        elif False:\n",
        "a kernel that its agent does not know has vanished",
    ),
    Mutant(
        "a lost Go is not repeated",
        f"{HANDLERS}/barrier.py",
        "    if not is_closed(session):\n        say_go(kernel, work)\n",
        "",
        "a command that was lost with a stream is sent again",
    ),
    Mutant(
        "a kernel is told to stop once only",
        f"{HANDLERS}/terminate.py",
        "        if sent_at is not None and work.now < stop_again_at(kernel, sent_at):\n",
        "        if sent_at is not None:\n",
        "a kernel that does not end is told again to stop",
        beyond="it is the second wall: a Stop is lost with its stream alone, and the Hello of the "
        "next one has it sent again; what a hollow supervisor is told it does",
    ),
    Mutant(
        "the barrier opens for the first kernel of a gang",
        f"{HANDLERS}/barrier.py",
        "        if ready + record.tally.among((KernelStatus.RUNNING,)) < len(record.kernels):\n",
        "        if ready + record.tally.among((KernelStatus.RUNNING,)) < 1:\n",
        "no kernel of a gang runs before each of them can",
    ),
    Mutant(
        "gangs have no barrier",
        f"{HANDLERS}/barrier.py",
        "    return len(session.kernels) > 1 and session.barrier_opened_at is None\n",
        "    return False\n",
        "no kernel of a gang runs before each of them can",
    ),
)

VERDICTS = (
    Mutant(
        "the wrong member of a gang is charged",
        f"{JOB}/judge.py",
        "    return {first}\n",
        "    return {len(attempts) - 1 - first}\n",
        "of a gang only the first task to fail is charged",
    ),
    Mutant(
        "lost machines are charged to tasks",
        f"{JOB}/judge.py",
        "        preemptions += 1\n        if preemptions <= budget.max_retries_preemption:\n",
        "        failures += 1\n        if failures <= budget.max_retries_failure:\n",
        "a lost machine charges the preemption budget, and no other",
    ),
    Mutant(
        "a retry too few is granted",
        f"{JOB}/judge.py",
        "        if failures <= budget.max_retries_failure:\n",
        "        if failures < budget.max_retries_failure:\n",
        "a task is tried again while its failures do not exceed its budget",
    ),
    Mutant(
        "attempts that never began are charged",
        f"{JOB}/judge.py",
        "        return TaskState.WORKER_FAILED if attempt.started else TaskState.PENDING\n",
        "        return TaskState.WORKER_FAILED\n",
        "an attempt that never began charges no budget",
    ),
    Mutant(
        "a task that somebody stopped ends its job",
        f"{JOB}/judge.py",
        "    if count(TaskState.KILLED, 0) > stopped:\n",
        "    if count(TaskState.KILLED, 0):\n",
        "where one task is stopped, the others go on",
    ),
    Mutant(
        "exit codes are forgotten",
        f"{SESSION}/kernel_reports.py",
        "        kernel.exit_code = exit_code\n",
        "",
        "a task that exits with 0 has succeeded",
    ),
    Mutant(
        "a failed try is charged each time that it is told",
        f"{SESSION}/kernel_reports.py",
        "    return kernel.failure is not None or report.at == kernel.failed_at\n",
        "    return False\n",
        "a report that is repeated changes nothing",
        scenario="failure_told_twice",
    ),
    Mutant(
        "the tasks of an ended job go on",
        f"{JOB}/derive.py",
        "    for task in list(job.tasks.values()):\n",
        "    for task in ():\n",
        "the end of a job ends its tasks",
    ),
    Mutant(
        "the sessions of an ended job go on",
        f"{SESSION}/handlers/promote.py",
        "        if job is None or not is_over(job):\n",
        "        if job is None or job.id:\n",
        "the end of a job has its sessions end",
    ),
)

PLACEMENT = (
    Mutant(
        "the queue is not told of another priority",
        f"{SCHEDULING}/passes/group_state.py",
        "        self.queue.move(waiting)\n",
        "",
        "work that was given another priority takes its place among others",
    ),
    Mutant(
        "running work is not told of another priority",
        f"{SCHEDULING}/passes/group_state.py",
        "                held.workload, held.seen = known[key][1], None\n",
        "",
        "work that was given another priority is displaced by what outranks it now",
    ),
    Mutant(
        "another priority of a job is not stored",
        f"{JOB}/requests.py",
        "            work.unit.rewrite(job)\n",
        "",
        "work that was given another priority has it with the next controller too",
    ),
    Mutant(
        "a reservation is forgotten when its agent is away",
        f"{SESSION}/cluster/workloads.py",
        "        returning=alive and not agent.connected",
        "        returning=False and not agent.connected",
        "a reservation survives that an agent is away for a moment",
    ),
    Mutant(
        "later sessions start before a strict queue's head",
        f"{SCHEDULING}/passes/placement.py",
        "        if policy is QueuePolicy.STRICT:\n            self._stopped",
        "        if False:\n            self._stopped",
        "priority is never inverted in a strict queue",
    ),
    Mutant(
        "the lowest priority goes first",
        f"{SCHEDULING}/passes/class_order.py",
        "    return (-session.workload.priority, *key,",
        "    return (session.workload.priority, *key,",
        "priority is never inverted in a strict queue",
    ),
    Mutant(
        "quotas of sessions are ignored",
        f"{SCHEDULING}/policy/validators.py",
        "                if used >= quota.sessions:\n",
        "                if used < 0:\n",
        "quotas are never exceeded",
        scenario="quotas_are_full",
    ),
    Mutant(
        "quotas of resources are ignored",
        f"{SCHEDULING}/policy/validators.py",
        "            if its.requested and used + its.requested > its.limit:\n",
        "            if False:\n",
        "quotas are never exceeded",
        scenario="quotas_are_full",
    ),
    Mutant(
        "work that can never run waits for ever",
        f"{HANDLERS}/schedule.py",
        "            if any(each.code in NEVER for each in reasons):\n",
        "            if False:\n",
        "all work ends once faults have stopped",
    ),
    Mutant(
        "work does not wait for that on which it depends",
        f"{SCHEDULING}/policy/validators.py",
        "            if not is_met(dependency, state):\n                replicas",
        "            if False:\n                replicas",
        "no work starts before its dependencies are met",
    ),
    Mutant(
        "a plug-in that failed is asked again",
        f"{SESSION}/cluster/state.py",
        "(*policy.refused, fault), policy)",
        "policy.refused, policy)",
        "a plug-in that failed serves no more",
    ),
    Mutant(
        "failed placements are not counted",
        f"{SESSION}/lifecycle.py",
        "            session.reschedules += 1\n",
        "",
        "a session is given up once too many of its placements failed",
    ),
    Mutant(
        "agents that take no work get work",
        f"{SESSION}/cluster/workloads.py",
        "    may = agent.barred is None and not agent.disk_full and not agent.withheld\n",
        "    may = not agent.withheld\n",
        "an agent that is barred gets no new work",
    ),
)

HISTORY = (
    Mutant(
        "a notice that was refused counts as sent",
        "control/notice/lifecycle.py",
        "            if outcome is not None and outcome.reason is None:\n",
        "            if outcome is not None:\n",
        "whoever asked is told of the end of work",
    ),
    Mutant(
        "two different refusals are merged",
        "store/entity.py",
        "return all(one.code is code for one, code in zip(self.reasons, codes, strict=True))",
        "return True",
        "history tells exactly what happened",
    ),
    Mutant(
        "the counts of merged refusals are lost",
        "store/history.py",
        "        for repeat in record.repeats:\n            self._write_count(repeat, record)\n",
        "",
        "history tells exactly what happened",
    ),
)

MUTANTS = (
    *LEDGER,
    *GENERATIONS,
    *COMMITS,
    *WAKES,
    *AGREEMENT,
    *VERDICTS,
    *REASONS,
    *TIMES,
    *PLACEMENT,
    *QUEUES,
    *POOLS,
    *HEALTH,
    *RECOVERY,
    *DEPLOYMENTS,
    *HISTORY,
)
