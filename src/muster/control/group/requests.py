"""Operators' requests about groups and quotas: functions of one wake's work that refuse before they
change anything."""

from collections.abc import Iterable
from typing import Any

from muster.control.engine.setting_changes import note_change
from muster.control.engine.work import Work
from muster.control.identity.tokens import invitations, revoke_join_token
from muster.control.session.cluster.state import ClusterState
from muster.control.session.handlers.start import recall_prefilled
from muster.core.errors import Conflict, NotFound
from muster.core.resources import format_amount, format_bytes
from muster.core.settings import SettingKind
from muster.core.specs import Level, QuotaLimits, QuotaSpec, ScalingGroup
from muster.core.specs.group import DEFAULT_GROUP
from muster.core.specs.quota import UNLIMITED
from muster.core.text import count
from muster.scheduling.policy.group_policy import Policy, check_options
from muster.store import schema
from muster.store.batch import deleting, inserting
from muster.store.entity import Record

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
        work.live.cluster = id_
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

    def remove_group(self, work: Work, name: str) -> None:
        """Forget a scaling group, and the invitations of agents to it.

        Raises:
            NotFound: there is none.
            Conflict: it is the default group; or it has agents, pools or work.
        """
        group = work.live.groups.get(name)
        if group is None:
            raise NotFound(f"there is no group {name!r}")
        if name == DEFAULT_GROUP:
            raise Conflict(f"group {name} is that of work and agents which name none: it stays")
        left = self._left_in(work, name)
        if left:
            held = ", ".join(count(number, kind) for kind, number in left.items())
            raise Conflict(f"group {name} is not empty: it has {held}")
        for token in invitations(work.live.accounts):
            if token.group == name:
                revoke_join_token(work, token.id)
        work.unit.also_rows(_DROP_GROUP, (name,))
        del work.live.groups[name]
        self._cluster.group_removed(name)
        note_change(work, SettingKind.GROUP, name, _group_said(group), None)

    def _left_in(self, work: Work, name: str) -> dict[str, int]:
        """How many records of the group have not ended, by the names of their kinds; ended work
        counts, too, while its processes may still be there."""
        left: dict[str, int] = {}
        for kind, entity in work.live.entities.items():
            if entity.goes_with:
                continue
            records: Iterable[Record] = work.live.of(kind).values()
            number = sum(getattr(record, "group", None) == name for record in records)
            if number:
                left[entity.name] = number
        held = len(self._cluster.groups[name].placed)
        return left if left or not held else {"session": held}

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
            work.unit.also_rows(_ADD_QUOTA, (*key, spec.model_dump_json(exclude_none=True)))
            work.live.quotas[key] = spec
        self._cluster.quotas_changed()
        for agent_id in work.live.allocations_on:
            recall_prefilled(work, agent_id, unless=self._cluster.may_prefill)


def _group_said(spec: ScalingGroup) -> dict[str, Any]:
    """The keys of a group that are no defaults."""
    return spec.model_dump(mode="json", exclude={"kind", "name"}, exclude_defaults=True)


def _quota_said(spec: QuotaSpec) -> dict[str, Any]:
    """The keys that a quota says, with amounts as people write them."""
    said = spec.model_dump(
        mode="json", exclude={"kind", "level", "name"}, exclude_defaults=True, exclude_none=True
    )
    said |= {"limits": _limits_said(spec.limits), "largest": _limits_said(spec.largest)}
    said["groups"] = {name: _limits_said(limits) for name, limits in spec.groups.items()}
    for key in ("open_specs", "ended_specs"):
        if isinstance(said.get(key), int):
            said[key] = format_bytes(said[key])
    return said


def _limits_said(limits: QuotaLimits) -> dict[str, Any]:
    amounts = {name: _amount(name, limit) for name, limit in limits.said.items()}
    models = {name: _amount("gpu", limit) for name, limit in limits.gpu_models.items()}
    return {**amounts, "gpu_models": models}


def _amount(resource: str, limit: int) -> str:
    return "unlimited" if limit == UNLIMITED else format_amount(resource, limit)
