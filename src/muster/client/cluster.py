"""The cluster and its policy: methods of both clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from muster.client.calls import PAGE, body_of
from muster.client.encoding import Ref, json_of, quoted, quoted_path
from muster.client.events import read_events
from muster.client.exchange import Exchange, Stream, exchange, streaming
from muster.client.resource import ClientResource, ListingQuery, RecordViews, ResourceCalls
from muster.core import views
from muster.core.ids import IdKind
from muster.core.views.events import EventView

if TYPE_CHECKING:
    from muster.core.specs import QuotaSpec, ScalingGroup
    from muster.core.states import AgentBar
    from muster.core.views.cluster import (
        AgentView,
        ClusterView,
        GroupView,
        HealthView,
        HeldKernelPage,
        QuotaView,
    )
    from muster.core.views.settings import ChangeView


def by_name(group: str | None = None) -> ListingQuery:
    """Machines, by name; of one group if it is given."""
    return ListingQuery({"group": group})


AGENTS = ClientResource(
    name="agent",
    prefix=IdKind.AGENT,
    path="/v1/agents",
    views=lambda: RecordViews(
        views.cluster.AgentView, views.cluster.AgentView, views.cluster.AgentPage
    ),
    listing=by_name,
)


class ClusterCalls(ResourceCalls):
    """Machines, scaling groups, quotas, and the controller itself."""

    agents = AGENTS

    @exchange
    def agent(self, ref: Ref) -> Exchange[AgentView]:
        """One machine, by its name, its id or a prefix of that; one that was removed, too.

        Raises:
            NotFound, Ambiguous: there is no such agent; or ``ref`` means several.
        """
        return self._show(AGENTS, ref)

    @exchange
    def agent_kernels(self, ref: Ref) -> Exchange[HeldKernelPage]:
        """The kernels that hold room of a machine, with the work that they are of; those of others
        are counted.

        Raises:
            NotFound, Ambiguous: there is no such agent; or ``ref`` means several.
        """
        return self._get(views.cluster.HeldKernelPage, f"/v1/agents/{quoted(ref)}/kernels")

    @exchange
    def remove_agent(self, ref: Ref, *, lost: bool = False) -> Exchange[None]:
        """Forget an agent (its name, id, or a prefix of it) that is gone for good, or was drained;
        for admins. With ``lost`` they vouch that its machine is gone or was rebooted: what it may
        still run counts as lost, and runs elsewhere.

        Raises:
            Conflict: it is alive and takes work, or may still run kernels.
        """
        yield from self._send("DELETE", AGENTS.of(ref), params={"lost": lost}, repeat=False)

    @exchange
    def groups(self) -> Exchange[list[GroupView]]:
        """Scaling groups, by name."""
        return list((yield from self._get(views.cluster.GroupPage, "/v1/groups")).items)

    @exchange
    def put_group(self, spec: ScalingGroup | Mapping[str, Any]) -> Exchange[GroupView]:
        """Make a scaling group, or give one another policy; for admins.

        Raises:
            InvalidSpec: with every problem found.
        """
        name = str(spec.get("name", "")) if isinstance(spec, Mapping) else spec.name
        _, body = body_of(spec)
        return self._read(
            views.cluster.GroupView, self._send("PUT", f"/v1/groups/{quoted(name)}", body=body)
        )

    @exchange
    def remove_group(self, name: str) -> Exchange[None]:
        """Remove a scaling group; for admins.

        Raises:
            NotFound: there is none.
            Conflict: it is the default one, or has agents, pools or work.
        """
        yield from self._send("DELETE", f"/v1/groups/{quoted(name)}", repeat=False)

    @exchange
    def bar_agent(
        self,
        ref: Ref,
        bar: AgentBar | str | None,
        *,
        note: str | None = None,
        deadline: float | str | None = None,
        keep_deadline: bool = False,
    ) -> Exchange[AgentView]:
        """Have an agent take no new work (``cordoned``, or ``draining`` until it is empty), or,
        with None, take work again. For admins.

        Args:
            note: an explanation for people; None keeps that of an agent that takes none already.
            deadline: kernels that still run on a draining agent after so long (seconds, or as
                ``"1h"``) are stopped, to run elsewhere; without a deadline they run to their end.
            keep_deadline: whether an agent that is draining already keeps its deadline instead.

        Raises:
            NotFound: there is no such agent.
        """
        asked: dict[str, Any] = {"bar": bar, "deadline": deadline}
        if note is not None:
            asked["note"] = note
        if keep_deadline:
            asked["keep_deadline"] = True
        body = json_of(asked)
        return self._read(
            views.cluster.AgentView, self._send("POST", AGENTS.of(ref, "bar"), body=body)
        )

    @exchange
    def changes(
        self, *, kind: str | None = None, by: str | None = None, limit: int = 100
    ) -> Exchange[list[ChangeView]]:
        """Changes of groups, users, projects, quotas, domains, tokens and pools, with who made
        them, the newest first; for admins.

        Args:
            kind: of group, user, project, quota, domain, token, join-token and pool; all when left
                out.
            by: a user, or domain/user.
            limit: so many at most.
        """
        found: list[ChangeView] = []
        cursor: str | None = None
        while len(found) < limit:
            wanted = min(limit - len(found), PAGE)
            page = yield from self._get(
                views.settings.ChangePage,
                "/v1/changes",
                kind=kind,
                by=by,
                limit=wanted,
                cursor=cursor,
            )
            found += page.items
            cursor = page.next
            if cursor is None:
                break
        return found

    @exchange
    def quotas(self) -> Exchange[list[QuotaView]]:
        """Quotas with their use: all for an admin, else the quotas that bind the caller."""
        return list((yield from self._get(views.cluster.QuotaPage, "/v1/quotas")).items)

    @exchange
    def put_quota(self, spec: QuotaSpec | Mapping[str, Any]) -> Exchange[QuotaView]:
        """Set the limits of a domain, a project or a user; for admins. Former limits are replaced.

        Raises:
            InvalidSpec: with every problem found.
        """
        fields = spec if isinstance(spec, Mapping) else {"level": spec.level, "name": spec.name}
        path = _quota_path(str(fields.get("level", "user")), str(fields.get("name", "")))
        _, body = body_of(spec)
        return self._read(views.cluster.QuotaView, self._send("PUT", path, body=body))

    @exchange
    def remove_quota(self, level: str, name: str) -> Exchange[None]:
        """Remove the limits of a domain, a project or a user; for admins.

        Raises:
            NotFound: it has none.
        """
        yield from self._send("DELETE", _quota_path(level, name), repeat=False)

    @exchange
    def cluster(self) -> Exchange[ClusterView]:
        """The cluster as a whole."""
        return self._get(views.cluster.ClusterView, "/v1/cluster")

    @exchange
    def health(self) -> Exchange[HealthView]:
        """Whether the controller answers; the token is not looked at."""
        return self._get(views.cluster.HealthView, "/health")

    @streaming(EventView)
    def events(self) -> Stream:
        """Changes, as they happen, for ever; a ``reset`` comes first and after each gap."""
        return read_events(self._open)


def _quota_path(level: str, name: str) -> str:
    return f"/v1/quotas/{quoted(level)}/{quoted_path(name)}"
