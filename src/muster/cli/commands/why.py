"""``muster why``."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from muster.cli.arguments import AsJson, Ref
from muster.cli.commands.fate import NO_FATE, Fate, fate_of
from muster.cli.explained import placement_shown
from muster.cli.nearest import suggesting
from muster.cli.screen import plain, print_json, status, stdout, unbroken, write
from muster.cli.target import Target, on_cluster
from muster.core.reasons import ReasonKind
from muster.core.states import JOB_TABLE, SESSION_TABLE

if TYPE_CHECKING:
    from muster.core.views import ReasonView, WhyView

WHO_ACTS: Mapping[str, str] = {
    ReasonKind.WAITING: "waiting: nothing to do, time cures it",
    ReasonKind.LIMIT: "limit: your quota",
    ReasonKind.REQUEST: "request: change what was asked for",
    ReasonKind.OPERATOR: "operator: the cluster needs attention",
}
_ENDED = JOB_TABLE.terminal | SESSION_TABLE.terminal


@on_cluster
def why(target: Target, ref: Ref, as_json: AsJson = False) -> None:
    """Explain why a job does not start, or why it ended."""
    with target.client() as client:
        with suggesting(client, ref):
            answer = client.why(ref.partition("/")[0])  # a task waits for what its job waits for
        if as_json:
            print_json(answer)
            return
        fate = fate_of(client, answer.subject)
    console = stdout()
    write(console, *explanation(console, answer, fate))


def explanation(console: Console, why: "WhyView", fate: Fate = NO_FATE) -> list[RenderableType]:
    """The verdict, every reason with what to do, and what the agents lack."""
    verdict = fate.verdict or why.verdict
    parts: list[RenderableType] = [
        Text.assemble(status(why.status), "  ", (plain(verdict), "bold"))
    ]
    parts += [Text(f"  {detail}") for detail in fate.details]
    ended = why.status in _ENDED
    said = " ".join((verdict, *fate.details))
    for reason in why.reasons:
        parts += _reason(reason, said, ended)
    if fate.commands:
        parts.append(unbroken(f"  see {' and '.join(f'`{each}`' for each in fate.commands)}"))
    if why.placement:
        parts += placement_shown(console, why.placement)
    return parts


def _reason(reason: "ReasonView", said: str, ended: bool) -> list[Text]:
    lines = [] if reason.sentence in said else [plain(reason.sentence)]
    if not ended or reason.kind == ReasonKind.OPERATOR:  # of what ended the sentence says it all
        lines.append(WHO_ACTS.get(reason.kind, reason.kind))
    if reason.remedy:
        lines.append(plain(reason.remedy))
    return [Text("\n".join(f"  {line}" for line in lines))] if lines else []
