"""The room of services, which no pass has found: it is in use, and counts in nobody's usage."""

from collections.abc import Callable, Mapping

from muster.core.health.service import Service
from muster.scheduling.passes.group_state import GroupState
from muster.store.live import Live
from muster.store.records import Agent, Allocation, LedgerKey


class ServiceRoom:
    """Keeps the room of services taken in the groups, as the ledger says.

    Args:
        agent_changed: called for an agent that takes no work any more, or takes some again, because
            a service has all of it, or had.
    """

    def __init__(
        self,
        live: Live,
        groups: Mapping[str, GroupState],
        agent_changed: Callable[[Agent], None],
    ) -> None:
        self._live = live
        self._groups = groups
        self._agent_changed = agent_changed
        self._services: dict[LedgerKey, Service] = {}  # a row may outlive its kernel's record

    def allocated(self, allocation: Allocation) -> bool:
        """Take the room of an allocation, if it is a service's; the answer is whether it is."""
        id_ = allocation.kernel_id
        kernel = self._live.kernels.get(id_) or self._live.left.get(id_)
        service = None if kernel is None else kernel.session.service
        if service is None:
            return False
        self._services[allocation.key] = service
        agent = self._live.agents[allocation.agent_id]
        self._groups[agent.group].occupy(agent.id, allocation.resources, allocation.shares)
        if service.is_whole:
            agent.in_service = True
            self._agent_changed(agent)
        return True

    def released(self, allocation: Allocation) -> bool:
        """Give the room of an allocation back, if it was a service's; whether it was."""
        service = self._services.pop(allocation.key, None)
        if service is None:
            return False
        agent = self._live.agents[allocation.agent_id]
        self._groups[agent.group].vacate(agent.id, allocation.resources, allocation.shares)
        if service.is_whole:
            agent.in_service = False
            self._agent_changed(agent)
        return True
