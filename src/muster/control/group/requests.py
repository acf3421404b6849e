"""Operators' requests about groups and quotas: functions of one wake's work that refuse before they
change anything."""

from typing import Any

from muster.control.engine.setting_changes import note_change
from muster.control.engine.work import Work
from muster.control.session.cluster.state import ClusterState
from muster.control.session.handlers.start import recall_prefilled
from muster.core.errors import NotFound
from muster.core.resources import format_amount, format_bytes
from muster.core.settings import SettingKind
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
        former = work.live.groups.get(spec.name)
        work.unit.also_rows(_DROP_GROUP, (spec.name,))
        work.unit.also_rows(_ADD_GROUP, (spec.name, spec.model_dump_json()))
        work.live.groups[spec.name] = spec
        before = None if former is None else _group_said(former)
        note_change(work, SettingKind.GROUP, spec.name, before, _group_said(spec))
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
        former = work.live.quotas.get(key)
        work.unit.also_rows(_DROP_QUOTA, key)
        before = None if former is None else _quota_said(former)
        after = None if spec is None else _quota_said(spec)
        note_change(work, SettingKind.QUOTA, key[1], before, after)
        if spec is None:
            del work.live.quotas[key]
        else:
            work.unit.also_rows(_ADD_QUOTA, (*key, spec.model_dump_json()))
            work.live.quotas[key] = spec
        self._cluster.quotas_changed()
        for agent_id in work.live.allocations_on:
            recall_prefilled(work, agent_id, unless=self._cluster.may_prefill)


def _group_said(spec: ScalingGroup) -> dict[str, Any]:
    """The keys of a group that are no defaults."""
    return spec.model_dump(mode="json", exclude={"kind", "name"}, exclude_defaults=True)


def _quota_said(spec: QuotaSpec) -> dict[str, Any]:
    """The keys of a quota that are no defaults, with amounts as people write them."""
    said = spec.model_dump(mode="json", exclude={"kind", "level", "name"}, exclude_defaults=True)
    for key, limits in (("limits", spec.limits), ("largest", spec.largest)):
        amounts = limits.amounts.items()
        said[key] = {name: format_amount(name, amount) for name, amount in amounts}
    for key in ("open_specs", "ended_specs"):
        if key in said:
            said[key] = format_bytes(said[key])
    return said
