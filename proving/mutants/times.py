"""The deliberate bugs about dates, and about times that are granted to work."""

from proving.mutants.mutant import Mutant

AGENT = "control/agent"
SESSION = "control/session"
HANDLERS = f"{SESSION}/handlers"

TIMES = (
    Mutant(
        "time limits are not enforced",
        f"{HANDLERS}/promote.py",
        "        if work.now < timed_out_at(record, timeout_s, work):\n            return None\n",
        "        return None\n",
        "no session runs for longer than its time limit",
    ),
    Mutant(
        "work waits beyond its scheduling timeout",
        f"{HANDLERS}/schedule.py",
        "        return record.scheduling_timeout_s or work.live.groups[record.group]"
        ".pending_timeout\n",
        "        return work.live.groups[record.group].pending_timeout\n",
        "no session waits for longer than its scheduling timeout",
    ),
    Mutant(
        "a drain's deadline passes unheeded",
        f"{AGENT}/drain.py",
        "        if work.now < record.leave_by:\n            return\n",
        "        return\n",
        "work has left a draining machine at its deadline",
        scenario="outlives_its_session",
    ),
    Mutant(
        "a clock that was set while no controller ran is believed",
        "core/clock.py",
        "    return Resumed(known_s, confirmed)\n",
        "    return Resumed(max(time_of_day_s, last_commit_s), True)\n",
        "the controller's time passes as time does, whatever the time of day says",
    ),
    Mutant(
        "kernels are stopped without their grace",
        f"{HANDLERS}/terminate.py",
        "kernel.process.grace if sent_at is None and not is_forced(why) else 0.0\n",
        "0.0\n",
        "a kernel that is told to stop has its grace",
    ),
    Mutant(
        "ends are dated by the machine's clock",
        f"{SESSION}/kernel_reports.py",
        "report), report.at + agent.clock_offset_s\n",
        "report), report.at\n",
        "what happened is dated by the controller's clock",
    ),
    Mutant(
        "a loss is dated when the machine is back",
        f"{AGENT}/hello.py",
        "        agent.silent_since = self._leases.silent_since(agent.id)\n",
        "        agent.silent_since = work.now\n",
        "kernels of an earlier boot are gone, as of when that boot was last heard",
    ),
    Mutant(
        "work is displaced before its lease is over",
        "scheduling/making_room/preemption.py",
        "        if may and each.started_at + policy.minimum_lease <= now:\n",
        "        if may:\n",
        "no session is displaced before the minimum lease of its group",
    ),
    Mutant(
        "the difference of clocks is measured once",
        f"{AGENT}/desk.py",
        "                agent.seen_at, agent.clock_offset_s = heard_at, offset_s\n",
        "                agent.seen_at = heard_at\n"
        "                agent.clock_offset_s = agent.clock_offset_s or offset_s\n",
        "what happened is dated by the controller's clock",
        scenario="clock_set_while_it_runs",
    ),
    Mutant(
        "a failure that is dated before another is taken for a repeated report",
        f"{SESSION}/kernel_reports.py",
        "kernel.failure is not None or report.at == kernel.failed_at",
        "kernel.failure is not None or report.at <= (kernel.failed_at or 0.0)",
        "each failed try is charged, whatever the machine's clock says",
        scenario="clock_set_back",
    ),
)
