"""Deliberate bugs about who waits for what: priorities, quotas and dependencies that change."""

from proving.mutants.mutant import Mutant

CLUSTER = "control/session/cluster"

QUEUES = (
    Mutant(
        "kernels in backlogs keep their former priority",
        f"{CLUSTER}/priorities.py",
        "                    cluster.shapes.reclassify(allocation, workload)\n",
        "                    pass\n",
        "work that was given another priority has it wherever it waits",
        scenario="priority_of_prefilled_work",
    ),
    Mutant(
        "a new quota leaves work in backlogs that it forbids",
        "control/group/requests.py",
        "            recall_prefilled(work, agent_id, unless=self._cluster.may_prefill)\n",
        "            pass\n",
        "quotas are never exceeded",
        scenario="quota_of_prefilled_work",
    ),
    Mutant(
        "dependent work begins while processes are left of what it waits for",
        f"{CLUSTER}/dependencies.py",
        "        if left:\n            self._leaving[id_] = left\n",
        "        if left:\n            pass\n",
        "no work starts before its dependencies are met",
        scenario="processes_of_a_dependency",
    ),
    Mutant(
        "nobody looks at work again whose dependency has come further",
        f"{CLUSTER}/dependencies.py",
        "        self._news.add(id_)\n        return True\n",
        "        return False\n",
        "nothing waits that could run",
        scenario="dependency_comes_further",
    ),
    Mutant(
        "another attempt may wait for a place as long as the first",
        f"{CLUSTER}/eligibility.py",
        "handed_in = session.created_at if job is None else job.submitted_at",
        "handed_in = session.created_at",
        "no session waits for longer than its scheduling timeout",
        scenario="retry_waits_on",
    ),
)
