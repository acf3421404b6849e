"""The variables that services give to the kernels of their sessions beside those of the specs."""

from collections.abc import Mapping

from muster.core.ids import SessionId


class ServiceVariables:
    """No variables. Deployments give their replicas some that no spec, and so no view, may hold."""

    def of(self, session: SessionId) -> Mapping[str, str]:
        """The variables of a session's kernels that are about to start, by their names."""
        return {}
