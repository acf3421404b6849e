"""Errors with which an agent ends that cannot do its work."""

from muster.core.errors import MusterError, Unwelcome


class AgentRefused(Unwelcome):
    """The controller does not want this agent; the text says why and what to do."""


class AgentPutOff(MusterError):
    """The controller does not take this agent in for now; one that is started later may fare
    better."""


class SupervisorUnavailable(MusterError):
    """The kernel supervisor cannot be started."""
