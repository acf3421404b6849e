"""Sessions and their kernels, as the control plane composes them."""

from muster.control.engine.module import Context, Declared, Module
from muster.control.session.barrier import OpenBarriers
from muster.control.session.cluster import ClusterState
from muster.control.session.facts import Facts
from muster.control.session.lifecycle import SessionLifecycle
from muster.control.session.prepare import PrepareSessions
from muster.control.session.promote import (
    DetectTermination,
    EnforceTimeout,
    PromoteToPrepared,
    PromoteToRunning,
    PromoteToTerminated,
)
from muster.control.session.requests import SessionRequests
from muster.control.session.schedule import ScheduleNewSessions
from muster.control.session.start import StartSessions
from muster.control.session.terminate import TerminateSessions


class SessionModule(Module):
    def declare(self, context: Context) -> Declared:
        store = context.store
        cluster = ClusterState(store.live, context.past, store.asked)
        sessions = SessionLifecycle(cluster)
        return Declared(
            lifecycles=[sessions],
            handlers=[
                ScheduleNewSessions(cluster, sessions),
                PrepareSessions(),
                PromoteToPrepared(),
                StartSessions(cluster),
                OpenBarriers(),
                PromoteToRunning(),
                DetectTermination(),
                EnforceTimeout(),
                TerminateSessions(),
                PromoteToTerminated(),
            ],
            offers=[
                cluster,
                sessions,
                Facts(sessions, cluster),
                SessionRequests(cluster, sessions),
            ],
            watch=cluster,
        )
