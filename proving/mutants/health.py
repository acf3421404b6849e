"""Deliberate bugs about machines that are checked and healed, and about services."""

from proving.mutants.mutant import Mutant

INCIDENTS = "control/health"
SESSION = "control/session"

HEALTH = (
    Mutant(
        "turns are ignored",
        f"{INCIDENTS}/ladder.py",
        "    room = most_out(machines, share) - out\n",
        "    room = machines\n",
        "no more of a group's machines are out of work than it allows",
    ),
    Mutant(
        "a heal needs no turn",
        f"{INCIDENTS}/steps.py",
        "            case _ if not self._has_turn(incident):\n",
        "            case _ if False:\n",
        "a wrong check takes no healthy majority away",
    ),
    Mutant(
        "the generation of a reboot's outcome is ignored",
        f"{INCIDENTS}/rebooting/effects.py",
        "            or incident.generation != self.generation\n",
        "",
        "the outcome of an older reboot changes nothing",
        scenario="refusal_told_late",
    ),
    Mutant(
        "a machine that is connected counts as rebooted",
        f"{INCIDENTS}/handlers.py",
        "    return is_back and bool(agent.boot_id) and agent.boot_id != incident.boot_id\n",
        "    return is_back and bool(agent.boot_id)\n",
        "a reboot is known by another boot id, never by a mere reconnect",
    ),
    Mutant(
        "unknown counts as faulty at once",
        f"{INCIDENTS}/ladder.py",
        "    if result is CheckResult.UNKNOWN and progress.unknowns < bounds.unknowns:\n",
        "    if False:\n",
        "a machine of which nothing is known is checked again before it is healed",
    ),
    Mutant(
        "unknown counts as healthy",
        f"{INCIDENTS}/ladder.py",
        "    if result is CheckResult.HEALTHY:\n",
        "    if result is not CheckResult.FAULTY:\n",
        "a machine takes work again once a check found it healthy",
    ),
    Mutant(
        "a late verdict counts",
        f"{INCIDENTS}/following.py",
        "        return [each for each in ended if of_service(each.id) is not None]\n\n"
        "    def follow(self, record: Session, work: Work) -> None:\n"
        "        incident = self._incidents.of_service(record.id)\n",
        "        return [each for each in ended if each.service is not None]\n\n"
        "    def follow(self, record: Session, work: Work) -> None:\n"
        "        incident = self._incidents.of(record.kernels[0].agent_id)\n",
        "a verdict of an older generation changes nothing",
    ),
    Mutant(
        "machines that are out of work get some",
        f"{INCIDENTS}/conditions.py",
        '    return ILL[incident.status] if is_out_of_work(incident) else ""\n',
        '    return ""\n',
        "no work is placed on a machine that is out of work for its health",
    ),
    Mutant(
        "a faulty machine takes work until it is its turn",
        f"{INCIDENTS}/conditions.py",
        "    return is_known_faulty(incident) or not waits_for_turn(incident)\n",
        "    return not waits_for_turn(incident)\n",
        "a machine that is known to be faulty is out of work",
    ),
    Mutant(
        "a restart forgets which machines are out of work",
        f"{INCIDENTS}/module.py",
        "                agent.ill = ill_of(incident)\n",
        "                pass\n",
        "no work is placed on a machine that is out of work for its health",
    ),
    Mutant(
        "a service begins beside work",
        f"{SESSION}/services.py",
        "        if users:\n",
        "        if False:\n",
        "no machine is checked, reset or rebooted while work holds its devices",
    ),
    Mutant(
        "work begins beside a service of the whole machine",
        f"{SESSION}/cluster/workloads.py",
        "    may = may and not agent.ill and not agent.in_service\n",
        "    may = may and not agent.ill\n",
        "no machine is checked, reset or rebooted while work holds its devices",
    ),
    Mutant(
        "rounds are without a limit",
        f"{INCIDENTS}/ladder.py",
        "    if progress.remedy is Remedy.OPERATOR or progress.rounds >= bounds.rounds:\n",
        "    if progress.remedy is Remedy.OPERATOR:\n",
        "a machine is healed no more often than its group says",
    ),
    Mutant(
        "a reboot may take for ever",
        f"{INCIDENTS}/handlers.py",
        "        elif self._is_over(incident, work):\n            self._give_up(",
        "        elif False:\n            self._give_up(",
        "every incident ends, or waits for an operator",
    ),
    Mutant(
        "each suspicion begins an incident",
        f"{INCIDENTS}/incidents.py",
        "        return self._by_agent.newest(agent_id)\n",
        "        return None\n",
        "a machine has one live incident at most",
    ),
)
