"""Domains, projects, users and tokens: methods of both clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from muster.client.calls import Calls
from muster.client.encoding import Ref, json_of, quoted
from muster.client.exchange import Exchange, exchange
from muster.core import views
from muster.core.views.base import View

if TYPE_CHECKING:
    from muster.core.owner import Role
    from muster.core.views.accounts import (
        DomainView,
        JoinTokenView,
        NewJoinTokenView,
        NewTokenView,
        ProjectView,
        TokenView,
        UserView,
        WhoamiView,
    )

V = TypeVar("V", bound=View)

DEFAULT = "default"
"""The domain and the project of a user who is in no other."""


class AccountCalls(Calls):
    """Methods that change something are for admins, except ``create_token`` and ``revoke_token``,
    with which users look after tokens of their own."""

    @exchange
    def whoami(self) -> Exchange[WhoamiView]:
        """The caller's identity, as the controller sees it in the token."""
        return self._get(views.accounts.WhoamiView, "/v1/whoami")

    # -- domains and projects --------------------------------------------------------------------

    @exchange
    def domains(self) -> Exchange[list[DomainView]]:
        """Domains by name: all for an admin, else the caller's own."""
        return list((yield from self._get(views.accounts.DomainPage, "/v1/domains")).items)

    @exchange
    def add_domain(self, name: str) -> Exchange[DomainView]:
        """
        Raises:
            Conflict: there is one of this name.
        """
        return self._post(views.accounts.DomainView, "/v1/domains", name=name)

    @exchange
    def remove_domain(self, name: str) -> Exchange[None]:
        """
        Raises:
            NotFound: there is none.
            Conflict: it has users or projects.
        """
        yield from self._send("DELETE", f"/v1/domains/{quoted(name)}", repeat=False)

    @exchange
    def projects(self) -> Exchange[list[ProjectView]]:
        """Projects by domain and name: all for an admin, else the caller's own."""
        return list((yield from self._get(views.accounts.ProjectPage, "/v1/projects")).items)

    @exchange
    def add_project(
        self, name: str, domain: str = DEFAULT, hosts: Sequence[str] = ()
    ) -> Exchange[ProjectView]:
        """Add a project to a domain. Its deployments may have these names of hosts, and names below
        them.

        Raises:
            InvalidSpec: there is no such domain, or a host is no name.
            Conflict: there is one of this name.
        """
        return self._post(
            views.accounts.ProjectView,
            "/v1/projects",
            domain=domain,
            name=name,
            hosts=[*hosts] or None,
        )

    @exchange
    def set_hosts(
        self, project: str, hosts: Sequence[str], domain: str = DEFAULT
    ) -> Exchange[ProjectView]:
        """Have a project's deployments use these names of hosts and names below them, and no
        others. Deployments keep the hosts that they have; ``outside`` tells of them.

        Raises:
            NotFound: there is no such project.
            InvalidSpec: a host is no name.
        """
        path = f"/v1/projects/{quoted(domain)}/{quoted(project)}/hosts"
        body = json_of({"hosts": [*hosts]})
        return self._read(views.accounts.ProjectView, self._send("PUT", path, body=body))

    @exchange
    def remove_project(
        self, name: str, domain: str = DEFAULT, *, cancel: bool = False
    ) -> Exchange[None]:
        """Remove a project, and the tokens that are good for it alone.

        Args:
            cancel: cancel the project's live work, in place of refusing.

        Raises:
            NotFound: there is none.
            Conflict: it is the only one of a user, or has live work.
        """
        path = f"/v1/projects/{quoted(domain)}/{quoted(name)}"
        yield from self._send("DELETE", path, params={"cancel": cancel}, repeat=False)

    # -- users -----------------------------------------------------------------------------------

    @exchange
    def users(self) -> Exchange[list[UserView]]:
        """Users by domain and name: all for an admin, else the caller alone."""
        return list((yield from self._get(views.accounts.UserPage, "/v1/users")).items)

    @exchange
    def add_user(
        self, name: str, projects: Sequence[str] = (DEFAULT,), domain: str = DEFAULT
    ) -> Exchange[UserView]:
        """Add a user to a domain and to projects of it. Work that names no project belongs to the
        first.

        Raises:
            InvalidSpec: there is no such domain or project.
            Conflict: there is one of this name.
        """
        return self._post(
            views.accounts.UserView, "/v1/users", domain=domain, name=name, projects=[*projects]
        )

    @exchange
    def set_projects(
        self, name: str, projects: Sequence[str], domain: str = DEFAULT, *, cancel: bool = False
    ) -> Exchange[UserView]:
        """Put a user in these projects and no others.

        Args:
            cancel: cancel work of projects that the user leaves, in place of refusing.

        Raises:
            NotFound: there is no such user.
            InvalidSpec: there is no such project.
            Conflict: the user has live work in a project that is left.
        """
        path = f"/v1/users/{quoted(domain)}/{quoted(name)}/projects"
        body = json_of({"projects": [*projects]})
        return self._read(
            views.accounts.UserView, self._send("PUT", path, params={"cancel": cancel}, body=body)
        )

    @exchange
    def remove_user(
        self, name: str, domain: str = DEFAULT, *, cancel: bool = False
    ) -> Exchange[None]:
        """Remove a user, and revoke all of the user's tokens.

        Args:
            cancel: cancel the user's live work, in place of refusing.

        Raises:
            NotFound: there is none.
            Conflict: the user has live work, or the last admin token.
        """
        path = f"/v1/users/{quoted(domain)}/{quoted(name)}"
        yield from self._send("DELETE", path, params={"cancel": cancel}, repeat=False)

    # -- tokens ----------------------------------------------------------------------------------

    @exchange
    def tokens(self) -> Exchange[list[TokenView]]:
        """API tokens, oldest first: all for an admin, else the caller's own."""
        return list((yield from self._get(views.accounts.TokenPage, "/v1/tokens")).items)

    @exchange
    def create_token(
        self,
        name: str = "token",
        *,
        role: Role | str = "user",
        user: str | None = None,
        domain: str | None = None,
        project: str | None = None,
        expires: str | float | None = None,
    ) -> Exchange[NewTokenView]:
        """Make an API token; the answer has its secret, which cannot be had again.

        Args:
            role: admin, user or viewer, like everything else at most the caller's own; or
                discovery, which an admin's token makes.
            user, domain: of the token; the caller's own when left out. Only admins make tokens of
                others.
            project: the only project that it is good for; all of the user's when left out.
            expires: how long it is good, as ``30d`` or in seconds; for ever when left out.

        Raises:
            InvalidSpec: there is no such user or project, or the token would have more rights than
                the caller's.
            Conflict: the user has too many.
        """
        return self._post(
            views.accounts.NewTokenView,
            "/v1/tokens",
            name=name,
            role=str(role),
            user=user,
            domain=domain,
            project=project,
            expires=expires,
        )

    @exchange
    def revoke_token(self, ref: Ref) -> Exchange[TokenView]:
        """Revoke a token (its id, a unique prefix of it, or its name), at once.

        Raises:
            NotFound: the caller has no such token.
            Ambiguous: there are several.
            Conflict: it is the last admin token.
        """
        return self._read(
            views.accounts.TokenView,
            self._send("DELETE", f"/v1/tokens/{quoted(ref)}", repeat=False),
        )

    # -- tokens for agents to join -----------------------------------------------------------------

    @exchange
    def join_tokens(self) -> Exchange[list[JoinTokenView]]:
        """Tokens with which agents join, oldest first; for admins."""
        return list((yield from self._get(views.accounts.JoinTokenPage, "/v1/join-tokens")).items)

    @exchange
    def create_join_token(
        self,
        agent: str | None = None,
        *,
        group: str | None = None,
        uses: int = 1,
        expires: str | float = "1h",
    ) -> Exchange[NewJoinTokenView]:
        """Make a token with which agents join; its secret is in the answer, and nowhere else.

        Args:
            agent: the only name that may join with it; any when left out. It also takes the name
                over from an agent that went away before.
            group: the only group that may be joined with it; any when left out.
            uses: how many agents may join with it.
            expires: how long it is good, as ``1h`` or in seconds.

        Raises:
            InvalidSpec: there is no such group; several uses for one name.
        """
        return self._post(
            views.accounts.NewJoinTokenView,
            "/v1/join-tokens",
            agent=agent,
            group=group,
            uses=uses,
            expires=expires,
        )

    @exchange
    def revoke_join_token(self, ref: Ref) -> Exchange[JoinTokenView]:
        """Revoke a join token (its id, a unique prefix of it, or the agent's name).

        Raises:
            NotFound, Ambiguous: none, or several.
        """
        return self._read(
            views.accounts.JoinTokenView,
            self._send("DELETE", f"/v1/join-tokens/{quoted(ref)}", repeat=False),
        )

    def _post(self, view: type[V], path: str, **fields: Any) -> Exchange[V]:
        """Make something. The request is not repeated where no answer came, because a secret is
        told only once."""
        known = {name: value for name, value in fields.items() if value is not None}
        return self._read(view, self._send("POST", path, body=json_of(known), repeat=False))
