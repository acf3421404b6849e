"""Completing names from the cluster: of work, agents and groups."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from muster.cli.target import Target
from muster.core.ids import IdKind

if TYPE_CHECKING:
    from muster.client import Client

TIMEOUT_S = 1.0
"""How long a person who pressed Tab may wait."""
OFFERED = 50

Offers = Iterable[tuple[str, str]]


def complete_ref(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names and ids of live jobs and sessions, then of those that ended, each with its state."""

    def look(client: "Client") -> Offers:
        for state in ("live", "ended"):
            # Ended work may be plenty: the controller looks for names that begin with the text.
            is_id = IdKind.JOB.begins(incomplete) or IdKind.SESSION.begins(incomplete)
            by_name = incomplete and not is_id
            name = f"{incomplete}*" if by_name and state == "ended" else None
            for job in client.jobs(state, name=name, limit=OFFERED):
                yield job.name, job.state.lower()
                yield job.id, job.state.lower()
            for session in client.sessions(state, name=name, limit=OFFERED):
                if session.name:
                    yield session.name, session.status.lower()
                yield session.id, session.status.lower()

    return _offered(ctx, incomplete, look)


def complete_any_ref(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """Work, as ``complete_ref`` offers it, then agents."""
    return complete_ref(ctx, incomplete) + complete_agent(ctx, incomplete)


def complete_agent(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of agents, each with its status."""
    return _offered(
        ctx,
        incomplete,
        lambda client: (
            (agent.name, str(agent.barred or agent.status.lower())) for agent in client.agents()
        ),
    )


def complete_group(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of scaling groups, each with how many agents it has."""
    return _offered(
        ctx,
        incomplete,
        lambda client: ((group.name, f"{group.agents} agents") for group in client.groups()),
    )


def complete_user(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of users, each with its domain."""
    return _offered(
        ctx, incomplete, lambda client: ((user.name, user.domain) for user in client.users())
    )


def _offered(
    ctx: click.Context, incomplete: str, look: "Callable[[Client], Offers]"
) -> list[tuple[str, str]]:
    """The offers of ``look`` that begin with the typed text; none where no cluster answers."""
    # No callback has run yet, not even the program's: only the words are parsed.
    target: Target = ctx.obj or Target()
    for words in (ctx.find_root().params, ctx.params):
        target = target.said(words.get("url"), words.get("token"), words.get("home"))
    found: dict[str, str] = {}
    try:
        with target.client(timeout_s=TIMEOUT_S) as client:
            for name, said in look(client):
                if name.startswith(incomplete):
                    found.setdefault(name, said)
                if len(found) >= OFFERED:
                    break
    except Exception:  # no error may end up in the command line that is being typed
        return [*found.items()]
    return [*found.items()]
