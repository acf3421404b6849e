"""Completing names from the cluster: of records of any kind, groups and users."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from muster.cli import kinds
from muster.cli.cluster import Cluster

if TYPE_CHECKING:
    from muster.cli.kinds.kind import Kind
    from muster.client import Client

TIMEOUT_S = 1.0
"""How long a person who pressed Tab may wait."""
OFFERED = 50
OF_WORK = {
    "succeeded": "once it has succeeded",
    "running": "once it runs",
    "ended": "however it ends",
    "failed": "once it has ended without success",
}
"""The conditions of a dependency on work (``DependencyCondition`` takes long to import)."""
OF_DEPLOYMENTS = {"healthy": "once its replicas are healthy"}
"""The conditions of a dependency on a deployment."""
_LIVE = ("live",)

Offers = Iterable[tuple[str, str]]


def complete_any(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """References to records of all kinds."""
    return _complete(ctx, incomplete, kinds.every())


def complete_cancelled(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """References to what can be cancelled: what has ended cannot."""
    cancelled = (kind for kind in kinds.every() if kind.is_cancelled)
    return _complete(ctx, incomplete, cancelled, _LIVE)


def complete_output(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """References to what has output."""
    from muster.cli.kinds import deployment

    with_output = [kind for kind in kinds.work() if kind.outputs is not None]
    return _complete(ctx, incomplete, [*with_output, deployment.KIND])


def complete_agent(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of agents, each with its status."""
    from muster.cli.kinds import agent

    return _complete(ctx, incomplete, [agent.KIND])


def complete_pool(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of pools, each with its status."""
    from muster.cli.kinds import pool

    return _complete(ctx, incomplete, [pool.KIND])


def complete_slice(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of slices, each with its pool."""
    from muster.cli.kinds import slice as slices

    return _complete(ctx, incomplete, [slices.KIND])


def complete_incident(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of incidents, each with its machine."""
    from muster.cli.kinds import incident

    return _complete(ctx, incomplete, [incident.KIND])


def complete_recovery(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of recoveries, each with its job."""
    from muster.cli.kinds import recovery

    return _complete(ctx, incomplete, [recovery.KIND])


def complete_deployment(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of deployments that are not taken down, each with its status."""
    from muster.cli.kinds import deployment

    return _complete(ctx, incomplete, [deployment.KIND], _LIVE)


def complete_job(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """References to jobs that have not ended."""
    from muster.cli.kinds import job

    return _complete(ctx, incomplete, [job.KIND], _LIVE)


def complete_waited_for(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """References to jobs, sessions and deployments for which a person may wait."""
    from muster.cli.kinds import deployment

    return _complete(ctx, incomplete, [*kinds.work(), deployment.KIND], _LIVE)


def complete_dependency(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of jobs, sessions and deployments for which work may wait; after a colon, the states of
    the one of this name for which it may."""
    from muster.cli.kinds import deployment

    name, colon, _ = incomplete.partition(":")
    waited_for = [*kinds.work(), deployment.KIND]
    if not colon:
        return _complete(ctx, incomplete, waited_for, _LIVE)

    def look(client: "Client") -> Offers:
        for kind in waited_for:
            of_name = name if kinds.of_ref(name) is None else None
            for record in kind.newest(client, "live", name=of_name, limit=OFFERED):
                if name in (kind.name_of(record), record.id):
                    conditions = OF_DEPLOYMENTS if kind is deployment.KIND else OF_WORK
                    for condition, said in conditions.items():
                        yield f"{name}:{condition}", said

    return _offered(ctx, incomplete, look)


def _complete(
    ctx: click.Context,
    incomplete: str,
    among: "Iterable[Kind[Any, Any]]",
    states: Sequence[str] = ("live", "ended"),
) -> list[tuple[str, str]]:
    """Names and ids of live records, each with its status; then names of those that ended, and
    their ids where the text begins as one."""
    asked, is_id = [*among], kinds.of_ref(incomplete) is not None

    def look(client: "Client") -> Offers:
        for state in states:
            # Ended work may be plenty: the controller looks for names that begin with the text.
            name = f"{incomplete}*" if incomplete and not is_id and state == "ended" else None
            for kind in asked:
                for record in kind.newest(client, state, name=name, limit=OFFERED):
                    for ref, said in kind.offers(record):
                        if state == "live" or is_id or ref != record.id:
                            yield ref, said

    return _offered(ctx, incomplete, look)


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
    """The suggestions of ``look`` that begin with the typed text; none where no cluster answers."""
    # No callback has run yet, not even the program's: only the words are parsed.
    cluster: Cluster = ctx.obj or Cluster()
    for words in (ctx.find_root().params, ctx.params):
        cluster = cluster.said(words.get("url"), words.get("token"), words.get("home"))
    found: dict[str, str] = {}
    try:
        with cluster.client(timeout_s=TIMEOUT_S) as client:
            for name, said in look(client):
                if name.startswith(incomplete):
                    found.setdefault(name, said)
                if len(found) >= OFFERED:
                    break
    except Exception:  # no error may end up in the command line that is being typed
        return [*found.items()]
    return [*found.items()]
