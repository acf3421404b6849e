"""Completing a REF from the live cluster."""

import click

from muster.cli.target import Target

TIMEOUT_S = 1.0
"""How long a person who pressed Tab may wait."""
OFFERED = 50


def complete_ref(ctx: click.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names and ids of live jobs, each with its state; none where no cluster answers."""
    # Nothing has run yet, the program's own callback neither: only the words are parsed.
    target: Target = ctx.obj or Target()
    for words in (ctx.find_root().params, ctx.params):
        target = target.said(words.get("url"), words.get("token"), words.get("home"))
    try:
        with target.client(timeout_s=TIMEOUT_S) as client:
            jobs = client.jobs("live", limit=OFFERED)
    except Exception:  # whatever it is, it must not end up in the command line being typed
        return []
    offered: list[tuple[str, str]] = []
    for job in jobs:
        offered += [
            (name, job.state.lower()) for name in (job.name, job.id) if name.startswith(incomplete)
        ]
    return offered
