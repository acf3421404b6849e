"""Answers about domains, projects, users and tokens."""

from muster.core.owner import Role
from muster.core.views.base import View


class DomainView(View):
    name: str
    created_at: float


class DomainPage(View):
    items: tuple[DomainView, ...]


class ProjectView(View):
    """A project, for which work is counted.

    Args:
        hosts: names of hosts that its deployments may have, with all names below them.
        outside: hosts that its deployments have since before, which ``hosts`` does not cover; told
            where ``hosts`` is set.
    """

    domain: str
    name: str
    created_at: float
    hosts: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()


class ProjectPage(View):
    items: tuple[ProjectView, ...]


class UserView(View):
    """Somebody who hands in work; work that names no project belongs to the first of ``projects``.
    ``uid`` is the one of its kernels on machines whose operators have not given it an account; None
    until some are to start there. ``warning`` tells an administrator who adds a user something to
    know of the cluster."""

    domain: str
    name: str
    projects: tuple[str, ...]
    created_at: float
    uid: int | None = None
    warning: str = ""


class UserPage(View):
    items: tuple[UserView, ...]


class TokenView(View):
    """An API token, without its secret. ``project`` is the only project that it is good for; None
    stands for all of its user's."""

    id: str
    name: str
    domain: str
    user: str
    project: str | None = None
    role: Role
    created_at: float
    expires_at: float | None = None
    expired: bool = False
    last_used_at: float | None = None


class TokenPage(View):
    """Tokens, oldest first."""

    items: tuple[TokenView, ...]


class NewTokenView(View):
    """A token and its ``secret``, which a client sends; it is told once and kept nowhere."""

    token: TokenView
    secret: str


class JoinTokenView(View):
    """A token with which agents join, without its secret.

    Args:
        agent: the only name that may join with it; None is any.
        group: the only scaling group that may be joined with it; None is any.
        uses_left: how many agents may still join with it; None is any number.
        good: whether an agent may still join with it.
    """

    id: str
    agent: str | None = None
    group: str | None = None
    uses_left: int | None = None
    good: bool = True
    made_by: str
    created_at: float
    expires_at: float | None = None


class JoinTokenPage(View):
    """Join tokens, oldest first."""

    items: tuple[JoinTokenView, ...]


class NewJoinTokenView(View):
    """A join token and its ``secret``, with which an agent joins; it is told once and kept nowhere.
    An agent on another machine finds the controller at ``agent_address``, host:port."""

    token: JoinTokenView
    secret: str
    agent_address: str = ""


class WhoamiView(View):
    """The identity that the controller sees in the caller's token.

    Args:
        project: of work that names none.
        projects: for which the caller may hand in work.
        token: the caller's.
    """

    domain: str
    user: str
    project: str
    projects: tuple[str, ...] = ()
    role: Role
    token: TokenView | None = None
