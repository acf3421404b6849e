"""``muster why``."""

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from muster.cli import kinds
from muster.cli.arguments import AnyRef, AsJson, kind_of, parse_ref
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.explained import placement_shown
from muster.cli.nearest import suggesting
from muster.cli.screen import status, stdout, unbroken, write
from muster.cli.streams import plain, print_json
from muster.cli.words import sentence_of, with_local_moments
from muster.core.reasons import WHO_ACTS, ReasonKind

if TYPE_CHECKING:
    from muster.core.views.base import ReasonView
    from muster.core.views.placement import WhyView


@on_cluster
def why(cluster: Cluster, ref: AnyRef, as_json: AsJson = False) -> None:
    """Explain why work does not start or has ended.

    Of another record, such as an agent or a notice, it tells what it lacks or waits for.
    """
    subject = parse_ref(ref)
    with cluster.client() as client, suggesting(client, ref, kinds.every()):
        if subject.index is None:
            answer = client.why(subject.ref)
        else:
            found = client.show(subject.ref)
            answer = kind_of(found, subject).why_of_part(client, found, subject.index)
    if as_json:
        print_json(answer)
        return
    console = stdout()
    write(console, *explanation(console, answer))


def explanation(console: Console, why: "WhyView") -> list[RenderableType]:
    """The verdict, every reason with its remedy, and the shortfalls of the agents."""
    parts: list[RenderableType] = [
        Text.assemble(
            status(why.standing or why.status),
            "  ",
            (plain(with_local_moments(why.verdict)), "bold"),
        )
    ]
    parts += [Text(f"  {plain(with_local_moments(detail))}") for detail in why.details]
    acts = {reason.kind for reason in why.reasons}
    if len(acts) > 1:
        acts.discard(ReasonKind.WAITING)  # time alone does not cure the other reasons
    if why.ended:  # the sentences say it all
        acts &= {ReasonKind.OPERATOR}
    said = " ".join((why.verdict, *why.details))
    for _, reasons in groupby(why.reasons, lambda reason: (reason.kind, reason.remedy)):
        parts += _alike([*reasons], said, acts)
    parts += [Text(f"  {plain(sentence_of(holding))}") for holding in why.held]
    if why.behind is not None:
        parts.append(Text(f"  {plain(sentence_of(why.behind))}"))
    if commands := _that_tell_more(why):
        parts.append(unbroken(f"  see {' and '.join(f'`{each}`' for each in commands)}"))
    if why.placement:
        parts += placement_shown(console, why.placement)
    return parts


def _that_tell_more(why: "WhyView") -> list[str]:
    """Commands that tell more about work that runs or has ended."""
    commands = []
    if why.output is not None:
        commands.append(f"muster logs {'' if why.ended else '-f '}{why.output}")
    if why.ended and why.name:
        commands.append(f"muster history {why.name}")
    return commands


def _alike(reasons: Sequence["ReasonView"], said: str, acts: Collection[str]) -> list[Text]:
    """Reasons with the same remedy; with the person who can act, if they are of the kinds
    ``acts``."""
    reason = reasons[0]
    lines = [plain(sentence_of(each)) for each in reasons if each.sentence not in said]
    if reason.kind in acts:
        lines.append(WHO_ACTS.get(reason.kind, reason.kind))
    if reason.remedy:
        lines.append(plain(reason.remedy))
    return [Text("\n".join(f"  {line}" for line in lines))] if lines else []
