"""Who work belongs to: the three levels that quotas and fairness count by (DESIGN section 1)."""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a person may do (DESIGN section 13)."""

    ADMIN = "admin"  # everything, everybody's
    USER = "user"  # their own work
    VIEWER = "viewer"  # look at their own work


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
    """An authenticated person or program: whose work it hands in, and what it may do."""

    owner: Owner
    role: Role

    def may_see(self, owner: Owner) -> bool:
        """Admins see all, others what is theirs; the rest is "not found"."""
        return self.role is Role.ADMIN or self.owner == owner

    def may_change(self, owner: Owner) -> bool:
        return self.role is Role.ADMIN or (self.role is Role.USER and self.owner == owner)
