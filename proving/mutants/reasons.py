"""Deliberate bugs about the reasons that waiting work tells."""

from proving.mutants.mutant import Mutant

SCHEDULING = "scheduling"

REASONS = (
    Mutant(
        "the reason of a refusal is kept from an earlier pass",
        f"{SCHEDULING}/passes/placement.py",
        "        if lack is None or lack.state != state:\n",
        "        if lack is None:\n",
        "reasons are dropped once they no longer hold",
    ),
    Mutant(
        "no pass follows a session that leaves the queue",
        f"{SCHEDULING}/passes/group_state.py",
        "        self.due = self.due or waited\n",
        "",
        "nothing waits that could run, nor for a session that is gone",
    ),
    Mutant(
        "full and silent agents are merged",
        f"{SCHEDULING}/fitting/feasibility.py",
        '    return "full" if status == OUT_OF_DISK else "silent"\n',
        '    return "silent"\n',
        "the remedy of a reason is for what keeps the agents from new work",
    ),
    Mutant(
        "the reason of a failed placement outlives the next one",
        "control/session/lifecycle.py",
        "                record.reason = None  # it no longer waits",
        "                pass  # it no longer waits",
        "reasons are dropped once they no longer hold",
    ),
    Mutant(
        "agents are said to be silent on which nothing is left",
        "control/session/explaining/explanation.py",
        "    if kernel.status in KERNEL_TABLE.terminal:\n        return None\n",
        "",
        "a reason tells what holds work up",
    ),
)
