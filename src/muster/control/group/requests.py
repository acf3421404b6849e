"""Operators' requests about groups and quotas: functions of one wake's work that refuse before they
change anything."""

from muster.control.engine.work import Work
from muster.control.session.cluster.state import ClusterState
from muster.control.session.handlers.start import recall_prefilled
from muster.core.errors import NotFound
from muster.core.specs import Level, QuotaSpec, ScalingGroup
from muster.scheduling.policy.group_policy import Policy, check_options
from muster.store import schema
from muster.store.batch import deleting, inserting

_ADD_SETTING = inserting(schema.cluster, ("key", "value"))
_ADD_GROUP = inserting(schema.groups, ("name", "spec"))
_DROP_GROUP = deleting(schema.groups, ("name",))
_ADD_QUOTA = inserting(schema.quotas, ("level", "name", "spec"))
_DROP_QUOTA = deleting(schema.quotas, ("level", "name"))


class GroupRequests:
    """Requests about scaling groups, quotas and the cluster itself."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster

    def name_cluster(self, work: Work, id_: str) -> None:
        """Give a new cluster the id that it keeps."""
        work.unit.also_rows(_ADD_SETTING, ("id", id_))

    def put_group(self, work: Work, spec: ScalingGroup) -> ScalingGroup:
        """Make a scaling group, or give one another policy.

        Raises:
            InvalidSpec: the spec has options for a part that it does not use.
            MusterError: the spec names an unknown plug-in.
        """
        check_options(spec)
        Policy.of(spec)
        work.unit.also_rows(_DROP_GROUP, (spec.name,))
        work.unit.also_rows(_ADD_GROUP, (spec.name, spec.model_dump_json()))
        work.live.groups[spec.name] = spec
        self._cluster.group_changed(spec.name)
        for agent in work.live.agents.values():
            if agent.group == spec.name:
                work.mark(agent)  # the agent may be granted another lease
                work.unit.touch(agent)  # and its heartbeat may change
        return spec

    def put_quota(self, work: Work, spec: QuotaSpec) -> QuotaSpec:
        """Set somebody's limits, in place of the former ones."""
        self._write_quota(work, (spec.level, spec.name), spec)
        return spec

    def remove_quota(self, work: Work, level: Level, name: str) -> QuotaSpec:
        """Remove somebody's limits.

        Raises:
            NotFound: there are none.
        """
        spec = work.live.quotas.get((level, name))
        if spec is None:
            raise NotFound(f"there is no quota of {level} {name}")
        self._write_quota(work, (level, name), None)
        return spec

    def _write_quota(self, work: Work, key: tuple[Level, str], spec: QuotaSpec | None) -> None:
        work.unit.also_rows(_DROP_QUOTA, key)
        if spec is None:
            del work.live.quotas[key]
        else:
            work.unit.also_rows(_ADD_QUOTA, (*key, spec.model_dump_json()))
            work.live.quotas[key] = spec
        self._cluster.quotas_changed()
        for agent_id in work.live.allocations_on:
            recall_prefilled(work, agent_id, unless=self._cluster.may_prefill)
