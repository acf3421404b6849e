"""The deliberate bugs about the ledger."""

from proving.mutants.mutant import Mutant

AGENT = "control/agent"
SESSION = "control/session"

LEDGER = (
    Mutant(
        "the ledger is freed before the agent confirms",
        f"{SESSION}/lifecycle.py",
        """            if before is KernelStatus.SCHEDULED:
                work.unit.release(key)
            else:
""",
        """            work.unit.release(key)
            if before is not KernelStatus.SCHEDULED:
""",
        "a row of the ledger stays until the agent confirms that the processes are gone",
        scenario="start_told_late",
    ),
    Mutant(
        "an expired stop frees the room",
        f"{SESSION}/lifecycle.py",
        """            case SessionStatus.TERMINATED:
                record.finished_at = work.now
""",
        """            case SessionStatus.TERMINATED:
                for kernel in record.kernels:
                    work.unit.release((kernel.id, kernel.generation))
                record.finished_at = work.now
""",
        "a row of the ledger stays until the agent confirms that the processes are gone",
        scenario="outlives_its_session",
    ),
    Mutant(
        "the end of an old generation frees nothing",
        f"{SESSION}/kernel_reports.py",
        """            _release(work, key, report.heir)
            if kernel""",
        """            if kernel""",
        "room that is proven free is given back",
    ),
    Mutant(
        "an heir's room is not charged",
        f"{SESSION}/kernel_reports.py",
        "        work.unit.charge(heir_row, allocation.shares)\n",
        "        pass\n",
        "a kernel's room passes to its heir in one commit",
        scenario="heirs_that_fail",
    ),
    Mutant(
        "an ended kernel keeps its row beside its heir's",
        f"{SESSION}/kernel_reports.py",
        """    work.unit.release(key)
    if allocation is not None and heir_row""",
        """    if heir_row is None:
        work.unit.release(key)
    if allocation is not None and heir_row""",
        "a kernel's room passes to its heir in one commit",
    ),
    Mutant(
        "silence frees an agent's room",
        f"{AGENT}/leases.py",
        "            if now < _until(lease) + LEASE_MARGIN_S:\n                return False\n",
        "",
        "kernels of a silent agent are unknown until its leases have ended",
    ),
    Mutant(
        "an agent that is lost may be renewed",
        f"{AGENT}/leases.py",
        "            lease.term_s = 0.0\n            return True\n",
        "            return True\n",
        "no renewal comes between the decision that an agent is lost and its commit",
        beyond="it does no harm: the agent's kernels have ended with the lease before, and Starts "
        "go to no agent that is lost",
    ),
    Mutant(
        "a lease is renewed that was never granted",
        f"{AGENT}/leases.py",
        "        grants.append(_Grant(sent_s, now, now + lease.term_s, lease.heartbeat_s))\n",
        "        if not grants:\n"
        "            grants.append(_Grant(sent_s, now, now + lease.term_s, lease.heartbeat_s))\n",
        "kernels of a silent agent are unknown until its leases have ended",
        scenario="renewed_lease",
    ),
    Mutant(
        "a boot that control has not heard of gets a lease",
        f"{AGENT}/leases.py",
        "        if not lease.term_s or lease.admitted != lease.incarnation:\n",
        "        if not lease.term_s:\n",
        "kernels of a silent agent are unknown until its leases have ended",
        beyond="it does no harm: nothing runs there yet, and the answer to its Hello grants the "
        "same",
    ),
    Mutant(
        "a new controller forgets the leases of the last one",
        f"{AGENT}/leases.py",
        "                    lease.former_until = max(now, self._former_until) + agent.lease_s\n",
        "                    pass\n",
        "a new controller counts with the longest lease that an agent may know",
    ),
    Mutant(
        "a controller that cannot ask its database goes on renewing leases",
        f"{AGENT}/leases.py",
        "        if self._clock.boot_s() >= self._in_charge_boot_s + self._in_charge_s:\n"
        "            return None  # another controller may wait for the ends of leases\n",
        "",
        "a controller that may have been overtaken renews no lease",
        scenario="cut_off_controller",
    ),
    Mutant(
        "a lease of a former controller is void once another is in force",
        f"{AGENT}/leases.py",
        "                if grants[0].at >= self._former_until:\n",
        "                if True:\n",
        "a new controller counts with the leases that agents get where they go back",
        scenario="gone_back",
    ),
    Mutant(
        "a shorter lease counts at once",
        f"{AGENT}/lifecycle.py",
        "lease_s = term_s if over else max(term_s, record.lease_s)",
        "lease_s = term_s",
        "a new controller counts with the longest lease that an agent may know",
        scenario="shorter_lease",
    ),
    Mutant(
        "a new controller takes the one that it followed to renew leases no more",
        f"{AGENT}/leases.py",
        "lease.former_until = max(now, self._former_until) + agent.lease_s",
        "lease.former_until = now + agent.lease_s",
        "a new controller counts with the longest lease that an agent may know",
        scenario="frozen_after_takeover",
    ),
)
