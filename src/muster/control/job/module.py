"""Jobs and their tasks, as the control plane composes them."""

from muster.control.engine.declared import Declared
from muster.control.engine.module import Context, Module
from muster.control.job.audit import AUDITS
from muster.control.job.derive import DeriveJobs
from muster.control.job.expand import ExpandJobs
from muster.control.job.held import HeldAttempts
from muster.control.job.lifecycle import JobLifecycle
from muster.control.job.requests import JobRequests
from muster.control.job.settle import SettleTasks
from muster.control.session.cluster.state import ClusterState
from muster.control.session.ended_specs import EndedSpecs
from muster.control.session.lifecycle import SessionLifecycle


class JobModule(Module):
    """The module of jobs and their tasks."""

    audits = AUDITS

    def declare(self, context: Context) -> Declared:
        cluster, sessions = context.parts[ClusterState], context.parts[SessionLifecycle]
        held = HeldAttempts()
        requests = JobRequests(
            cluster, sessions, context.parts[EndedSpecs], context.store.free_job_number
        )
        return Declared(
            lifecycles=[JobLifecycle(cluster, held)],
            handlers=[
                ExpandJobs(cluster, held),
                SettleTasks(cluster, held),
                DeriveJobs(sessions, cluster),
            ],
            offers=[held, requests],
        )
