"""The names of hosts that a deployment may have: those that an operator has given to its project,
and its own name below the domain of the cluster's deployments, if there is one."""

from collections.abc import Sequence
from dataclasses import dataclass

from muster.core.errors import Problem
from muster.core.specs.account import DEFAULT

MOST_TOLD = 8
"""Names that a refusal tells."""


@dataclass(frozen=True, slots=True)
class HostRule:
    """The hosts that one deployment may have.

    Args:
        own: the deployment's own name below the domain of the cluster's deployments; None where
            operators have named no such domain.
        given: names that its project may use, each with all names below it.
    """

    own: str | None
    given: Sequence[str]

    @classmethod
    def of(cls, name: str, domain: str | None, given: Sequence[str]) -> "HostRule":
        """The rule for the deployment called ``name``."""
        return cls(None if domain is None else f"{name.lower()}.{domain}", given)

    def allows(self, host: str) -> bool:
        return host == self.own or is_covered(host, self.given)

    def refusal(self, host: str, domain: str, project: str) -> Problem:
        """The problem of who asked for another host, for a project of this domain."""
        may = [] if self.own is None else [f"{self.own}, its own"]
        if self.given:
            told = ", ".join(self.given[:MOST_TOLD])
            told += ", …" if len(self.given) > MOST_TOLD else ""
            may.append(f"{told}, and names below")
        of_domain = "" if domain == DEFAULT else f" --domain {domain}"
        return Problem(
            "host",
            repr(host),
            f"project {domain}/{project} may use {'; '.join(may) or 'no host'}. An administrator "
            f"gives it names with `muster projects set {project}{of_domain} --host NAME`",
        )


def is_covered(host: str, names: Sequence[str]) -> bool:
    """Whether a host is one of the names, or below one."""
    return any(host == name or host.endswith(f".{name}") for name in names)
