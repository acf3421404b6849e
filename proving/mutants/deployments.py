"""Deliberate bugs about deployments and their routes."""

from proving.mutants.mutant import Mutant

DEPLOYMENT = "control/deployment"
SERVING = "serving"

DEPLOYMENTS = (
    Mutant(
        "replicas go before others serve in their place",
        f"{SERVING}/replicas.py",
        "    spare_serving = max(0, counted - (wanted - unavailable))\n"
        "    spare = max(0, counted + len(withdrawn) - (wanted - unavailable))\n",
        "    spare_serving = spare = len(leaving)\n",
        "never fewer healthy routes than the update allows",
    ),
    Mutant(
        "replicas that are held or to be left have no room",
        f"{SERVING}/replicas.py",
        "    create = min(wanted + surge - len(live) - held, wanted - len(kept))\n",
        "    create = wanted - len(kept)\n",
        "no replica is made beyond those that are wished, and their surge",
    ),
    Mutant(
        "a bad probe withdraws nobody",
        f"{DEPLOYMENT}/standing.py",
        "    if route.good is False:\n        return Standing.WITHDRAWN\n",
        "",
        "traffic goes only to routes that were healthy at their last probe",
    ),
    Mutant(
        "an update that was given up goes on",
        f"{DEPLOYMENT}/handlers.py",
        "        deployment.rollout = None\n        deployment.reason = why\n",
        "        deployment.reason = why\n",
        "a revision that was given up stays so until the spec changes",
    ),
    Mutant(
        "all that are unhealthy are evicted at once",
        f"{DEPLOYMENT}/route_handlers.py",
        "        return deployment.spec.disruptable(deployment.replicas) - missing\n",
        "        return 99\n",
        "no more unhealthy replicas are replaced at a time than the disruption allows",
    ),
    Mutant(
        "routes outlive their deployment",
        f"{DEPLOYMENT}/route_handlers.py",
        "        if record.deployment.is_going:\n",
        "        if False:\n",
        "a destroyed deployment leaves nothing",
    ),
    Mutant(
        "an order to the prober that was lost is not repeated",
        f"{DEPLOYMENT}/probes.py",
        "        if is_told and is_heard:\n",
        "        if is_told:\n",
        "each deployment has its replicas once faults have stopped",
    ),
    Mutant(
        "a replica is stopped and its end not waited for",
        f"{DEPLOYMENT}/route_handlers.py",
        "            if session is None or session.status in SESSION_TABLE.terminal:\n"
        "                if route.kernel_id",
        "            if session is None or session.status is SessionStatus.TERMINATING:\n"
        "                if True or route.kernel_id",
        "a destroyed deployment leaves nothing",
    ),
)
