"""Sessions and their kernels, as the control plane composes them."""

from muster.control.engine.declared import Declared
from muster.control.engine.module import Context, Module
from muster.control.engine.work import Work
from muster.control.session.cluster.state import ClusterState
from muster.control.session.ended_specs import EndedSpecs
from muster.control.session.handlers.barrier import OpenBarriers
from muster.control.session.handlers.prepare import PrepareSessions
from muster.control.session.handlers.promote import (
    DetectTermination,
    EndWithJob,
    EnforceTimeout,
    PromoteToPrepared,
    PromoteToRunning,
    PromoteToTerminated,
)
from muster.control.session.handlers.schedule import ScheduleNewSessions
from muster.control.session.handlers.start import StartSessions
from muster.control.session.handlers.terminate import TerminateSessions
from muster.control.session.heard_time import Unheard
from muster.control.session.kernel_reports import KernelReports
from muster.control.session.lifecycle import SessionLifecycle
from muster.control.session.removed_files import RemovedFiles
from muster.control.session.requests import SessionRequests
from muster.control.session.services import Services
from muster.scheduling.accounting.fairness import UsageSpan


class SessionModule(Module):
    """The module of sessions; offers the cluster as placement sees it, too.

    Args:
        unheard: tells the agents of which messages wait for a later wake.
        uids: from which users are given uids; None is the range that follows from the cluster's id.
    """

    def __init__(self, unheard: Unheard, uids: range | None = None) -> None:
        self._unheard = unheard
        self._uids = uids
        self._ended_specs: EndedSpecs | None = None

    def declare(self, context: Context) -> Declared:
        store, clock = context.store, context.clock

        def ended(group: str, span_s: float) -> list[UsageSpan]:
            return store.ended_usage(group, clock.now() - span_s)

        cluster = ClusterState(store.live, ended, store.ended_requests)
        cluster.uids.chosen = self._uids
        sessions = SessionLifecycle(cluster)
        self._ended_specs = EndedSpecs(cluster, store.whole_spec)
        return Declared(
            lifecycles=[sessions],
            handlers=[
                EndWithJob(),
                ScheduleNewSessions(cluster, sessions),
                PrepareSessions(self._unheard),
                PromoteToPrepared(),
                StartSessions(cluster, self._unheard),
                OpenBarriers(),
                PromoteToRunning(),
                DetectTermination(cluster),
                EnforceTimeout(),
                TerminateSessions(self._unheard),
                PromoteToTerminated(),
            ],
            offers=[
                cluster,
                cluster.uids,
                sessions,
                KernelReports(sessions, cluster),
                SessionRequests(cluster, sessions, self._ended_specs),
                self._ended_specs,
                RemovedFiles(store.removed),
                Services(sessions),
            ],
            watch=cluster,
        )

    def sweep(self, work: Work, since: float) -> None:
        """Have what is left of large specs of ended work cut."""
        if self._ended_specs is not None:
            self._ended_specs.sweep(work)
