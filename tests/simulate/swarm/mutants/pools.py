"""Deliberate bugs about pools, slices and their machines."""

from tests.simulate.swarm.mutants.mutant import Mutant

POOL = "control/pool"

POOLS = (
    Mutant(
        "a slice ends though its provider could not delete it",
        f"{POOL}/deleting.py",
        "            if outcome.gone or is_given_up(slice_):\n",
        "            if True:\n",
        "a slice ends once its provider has no machine of it",
    ),
    Mutant(
        "machines without a slice are left alone",
        f"{POOL}/pools.py",
        "            work.emit(DeleteSlice(id_, pool.name, 0))\n",
        "            pass\n",
        "machines that nobody wants are deleted",
    ),
    Mutant(
        "agents of a slice that is to be deleted take work",
        f"{POOL}/slices.py",
        '        return "its slice is being deleted"\n',
        '        return ""\n',
        "nothing begins on machines that are to go",
    ),
    Mutant(
        "agents take work before their slice is READY",
        f"{POOL}/slices.py",
        "    if slice_.status is not SliceStatus.READY:\n        return f",
        "    if False:\n        return f",
        "nothing begins on machines of a slice that is not READY",
    ),
    Mutant(
        "slices that are being deleted do not count",
        f"{POOL}/autoscaler.py",
        "                len(of_pool),\n",
        "                sum(each.doomed is None for each in of_pool),\n",
        "a pool has max_slices at most, those that are being deleted included",
    ),
    Mutant(
        "ceilings forget the machines that there are",
        "autoscaling/pool_state.py",
        "                self.add(pool.spec, pool.slices)\n",
        "                pass\n",
        "no slice is made beyond the limits of its group",
    ),
    Mutant(
        "idle slices are deleted below the minimum",
        "autoscaling/slice_plan.py",
        "        elif left <= spec.min_slices:\n",
        "        elif left < spec.min_slices:\n",
        "nothing is made and deleted in turn",
    ),
    Mutant(
        "slices with work count as idle",
        f"{POOL}/autoscaler.py",
        "        busy = self._fleet.is_used(slice_)\n",
        "        busy = False\n",
        "nobody is drained for nothing",
    ),
    Mutant(
        "a machine that no list had yet is gone",
        f"{POOL}/fleet.py",
        "        gone = frozenset(slice_.names if settled else expected) - present\n",
        "        gone = frozenset(slice_.names) - present\n",
        "nobody is drained for nothing",
    ),
    Mutant(
        "slices of a pool that stands still are deleted",
        f"{POOL}/deleting.py",
        "        result.skipped[slice_] = () if pool.reason is None else (pool.reason,)\n"
        "        return True\n",
        "        return False\n",
        "nothing is deleted by decision while too many machines are silent",
    ),
    Mutant(
        "the token of a slice outlives its machines' joining",
        f"{POOL}/slices.py",
        "        self._fleet.admit_no_more(slice_)\n",
        "",
        "machines join with the token of their slice while it is made",
    ),
    Mutant(
        "the secret of a slice is kept",
        f"{POOL}/slices.py",
        '        slice_.secret = ""\n',
        "        pass\n",
        "a secret that is of no use is nowhere",
    ),
    Mutant(
        "agents outlive their slice",
        f"{POOL}/slices.py",
        '            self._agents.remove(work, agent, "DeleteSlices", why)\n',
        "            pass\n",
        "an agent whose machine is gone is removed",
    ),
    Mutant(
        "an order that another has followed is carried out",
        f"{POOL}/performing/orders.py",
        " or row.generation != effect.generation:\n",
        ":\n",
        "a slice is not made again after it was deleted",
        scenario="overtaken_order",
    ),
    Mutant(
        "slices of any age are emptied though work runs on them",
        "autoscaling/consolidation.py",
        "        and (each.age_s or 0.0) >= rules.after_s\n",
        "",
        "a slice is emptied from the age on that its group says",
        scenario="half_empty_slices",
    ),
    Mutant(
        "hard constraints are no rules",
        "scheduling/cluster/constraints.py",
        "        if not constraint.soft:\n",
        "        if False:\n",
        "work lies on machines of the labels that it asks for",
    ),
    Mutant(
        "a gang that asks for one slice takes any machines",
        "scheduling/fitting/fit.py",
        "    if placement.together is not None:\n        within",
        "    if False:\n        within",
        "a gang lies in one slice where it asks for that",
        scenario="gang_in_one_slice",
    ),
)
