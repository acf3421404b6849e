"""Owners of work: domain, project and user, by which quotas and fairness count (design: Words)."""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

from muster.core.errors import InvalidSpec, Problem
from muster.core.ids import TokenId

OWNER_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._@-]{0,61}[A-Za-z0-9])?")
"""The pattern of the name of a domain, a project or a user."""


RUNS_AS = "runs_as"
"""The attribute of an agent that names the account of its kernels, if they all have the same."""
AS_OWNER = "owner"
"""The value of ``RUNS_AS`` where each kernel runs as its owner."""


class Role(StrEnum):
    """The rights of a token (design: Access)."""

    ADMIN = "admin"  # everything, everybody's
    USER = "user"  # their own work
    VIEWER = "viewer"  # look at their own work
    DISCOVERY = "discovery"  # read where replicas of all deployments are, and nothing else

    def includes(self, other: "Role") -> bool:
        """Whether this role may do all that the other may."""
        if self in (Role.ADMIN, other):
            return True
        return self is Role.USER and other is Role.VIEWER

    @property
    def may_send_requests(self) -> bool:
        """Whether it opens deployments that ask for a token."""
        return self in (Role.ADMIN, Role.USER)


@dataclass(frozen=True, slots=True)
class Owner:
    """Domain, project and user, outermost first."""

    domain: str
    project: str
    user: str

    def __str__(self) -> str:
        return f"{self.domain}/{self.project}/{self.user}"


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated person or program: whose work it hands in, and what it may do.

    Args:
        owner: of the work that it hands in, unless the work names another of ``projects``.
        projects: the user's projects for which the token is good; empty means the owner's project
            alone.
        token: the id of its token; None for the controller itself.
    """

    owner: Owner
    role: Role
    projects: tuple[str, ...] = ()
    token: TokenId | None = None

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN

    def may_see(self, owner: Owner) -> bool:
        """Whether the principal may know of the owner's work: admins know of all, others of their
        own."""
        return self.is_admin or self.owns(owner)

    def may_change(self, owner: Owner) -> bool:
        return self.is_admin or (self.role is Role.USER and self.owns(owner))

    def within(self, project: str | None) -> "Principal":
        """The same principal, handing in work of this project; None leaves its project as it is.

        Raises:
            InvalidSpec: the token is not good for the project.
        """
        if project is None or project == self.owner.project:
            return self
        if project not in self.projects:
            known = ", ".join(self.projects or (self.owner.project,))
            expected = f"expected a project of yours that your token is good for: {known}"
            raise InvalidSpec([Problem("project", repr(project), expected)])
        owner = Owner(self.owner.domain, project, self.owner.user)
        return replace(self, owner=owner)

    def owned_projects(self) -> Collection[str]:
        """The projects in which the user's work is the principal's own."""
        return {self.owner.project, *self.projects}

    def owns(self, owner: Owner) -> bool:
        """Whether the owner's work is the principal's own, in whichever project."""
        same_user = (owner.domain, owner.user) == (self.owner.domain, self.owner.user)
        return same_user and (owner.project == self.owner.project or owner.project in self.projects)
