"""Deliberate bugs about recoveries of jobs from broken machines."""

from proving.mutants.mutant import Mutant

RECOVERY_OF_JOBS = "control/recovery"

RECOVERY = (
    Mutant(
        "a failed attempt begins round after round",
        f"{RECOVERY_OF_JOBS}/attempts.py",
        "        if not _is_current(record) or _is_noted(recovery, record):\n",
        "        if not _is_current(record):\n",
        "a failed attempt leads to one round at most",
    ),
    Mutant(
        "restarts are not counted",
        f"{RECOVERY_OF_JOBS}/lifecycle.py",
        "                    record.restarts += 1\n",
        "                    pass\n",
        "a job is restarted for faults of machines no more often than its spec says",
    ),
    Mutant(
        "the attempt of a round is ignored",
        f"{RECOVERY_OF_JOBS}/rounds.py",
        "any(task.index == index and task.attempt == attempt for",
        "any(task.index == index for",
        "what a check says of an older attempt changes nothing for the present one",
    ),
    Mutant(
        "work that runs again is waited for",
        f"{RECOVERY_OF_JOBS}/rules.py",
        "    if runs:\n",
        "    if False:\n",
        "a round is over once its tasks run again",
    ),
    Mutant(
        "checks are awaited without a limit",
        f"{RECOVERY_OF_JOBS}/rules.py",
        "    if awaited and waited_s < spec.check_timeout:\n",
        "    if awaited:\n",
        "a job waits for checks no longer than its spec says",
    ),
    Mutant(
        "machines are awaited without a limit",
        f"{RECOVERY_OF_JOBS}/rules.py",
        "    over = waited_s >= spec.return_timeout\n",
        "    over = False\n",
        "a job waits for its machines no longer than its spec says",
    ),
    Mutant(
        "work begins again before the check is over",
        f"{RECOVERY_OF_JOBS}/book.py",
        "        return recovery.status in _HOLDING and _has(recovery.open, task)\n",
        "        return False\n",
        "no task begins again while the machines of its attempt are checked",
    ),
    Mutant(
        "rounds that are next hear nothing of their machines",
        f"{RECOVERY_OF_JOBS}/book.py",
        "        rounds = filter(None, (recovery.open, recovery.next))\n",
        "        rounds = filter(None, (recovery.open,))\n",
        "a round waits for no machine of which all is known",
    ),
    Mutant(
        "with one failure others of a job that recovers whole begin anew",
        f"{RECOVERY_OF_JOBS}/book.py",
        "        return recovery.next is not None or recovery.status in _HOLDING\n",
        "        return False\n",
        "no task of a job that recovers whole begins while machines are checked",
    ),
    Mutant(
        "a restart forgets which jobs recover",
        f"{RECOVERY_OF_JOBS}/book.py",
        "            self.made(recovery)\n",
        "            pass\n",
        "a job has one live recovery",
    ),
    Mutant(
        "failures are charged though a machine was at fault",
        f"{RECOVERY_OF_JOBS}/rules.py",
        "    if faulty:\n",
        "    if False:\n",
        "a fault of a machine charges no retry",
    ),
    Mutant(
        "failures on healthy machines are charged to nobody",
        "control/job/closing.py",
        "_verdict(task, state, task.failure_count + 1, task.reason)))\n",
        "_verdict(task, state, task.failure_count, task.reason)))\n",
        "without a fault the retries of the task decide",
    ),
)
