"""Later tasks of jobs, which are demand before they stand in the queue."""

from muster.control.session.cluster.state import ClusterState
from muster.scheduling.workload import WorkloadClass
from muster.store.live import Live


def followers(live: Live, cluster: ClusterState, group: str) -> dict[WorkloadClass, int]:
    """By class of sessions that wait in the group, how many later tasks of their jobs will follow
    them."""
    found: dict[WorkloadClass, int] = {}
    queue = cluster.groups[group].queue
    for id_, count in cluster.to_come.items():
        job = live.jobs.get(id_)
        if job is None or job.group != group or not job.tasks or job.held is not None:
            continue
        newest = job.tasks[next(reversed(job.tasks))]
        members = queue.find(newest.session_id) if newest.session_id else None
        if members is not None:
            found[members.workload] = found.get(members.workload, 0) + count
    return found
