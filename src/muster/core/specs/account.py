"""Requests for new users and tokens: an administrator's, and a user's for tokens of their own."""

from typing import Annotated

from pydantic import Field

from muster.core.owner import Role
from muster.core.specs.amounts import Name, OwnerName, PositiveDuration, Spec
from muster.core.specs.serving import HostSuffix

DEFAULT = "default"
"""The domain and the project of a user who is in no other."""
MAX_PROJECTS = 100
"""Projects of one user."""
MAX_HOSTS = 100
"""Names of hosts that one project may use."""
MAX_USES = 10_000
"""Agents that may join with one token."""


class ProjectsSpec(Spec):
    """The projects of a user. Work that names no project belongs to the first."""

    projects: Annotated[tuple[OwnerName, ...], Field(min_length=1, max_length=MAX_PROJECTS)] = (
        DEFAULT,
    )


class UserSpec(ProjectsSpec):
    """A new user of a domain. Domain and projects must exist."""

    domain: OwnerName = DEFAULT
    name: OwnerName


class HostsSpec(Spec):
    """The names of hosts that the deployments of a project may have: each stands for itself and for
    all names below it."""

    hosts: Annotated[tuple[HostSuffix, ...], Field(max_length=MAX_HOSTS)] = ()


class ProjectSpec(HostsSpec):
    """A new project of a domain that exists."""

    domain: OwnerName = DEFAULT
    name: OwnerName


class DomainSpec(Spec):
    """A new domain."""

    name: OwnerName


class TokenSpec(Spec):
    """A new API token.

    Args:
        name: what its owner calls it.
        domain, user: whose it is; the caller's own when left out.
        project: the only project that it is good for; all of its user's when left out.
        role: what may be done with it; ``discovery`` reads where the replicas of all deployments
            are, for Prometheus and Traefik.
        expires: how long it is good, in seconds; for ever when left out.
    """

    name: Name = "token"
    domain: OwnerName | None = None
    user: OwnerName | None = None
    project: OwnerName | None = None
    role: Role = Role.USER
    expires: PositiveDuration | None = None


class JoinTokenSpec(Spec):
    """A new token with which agents join.

    Args:
        agent: the only name that may join with it; any when left out. Made by an administrator
            after the agent of that name went away, it takes the name over.
        group: the only scaling group that may be joined with it; any when left out.
        uses: how many agents may join with it.
        expires: how long it is good, in seconds.
    """

    agent: Name | None = None
    group: Name | None = None
    uses: Annotated[int, Field(ge=1, le=MAX_USES)] = 1
    expires: PositiveDuration = 3600.0
