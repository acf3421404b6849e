"""``muster why``."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.text import Text

from muster.cli.arguments import AsJson, Ref
from muster.cli.commands.fate import NO_FATE, Fate, fate_of
from muster.cli.nearest import suggesting
from muster.cli.screen import (
    Column,
    plain,
    print_json,
    status,
    stdout,
    table,
    unbroken,
    write,
)
from muster.cli.target import Target, on_cluster
from muster.cli.words import count
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
        parts += _placement(console, why.placement)
    return parts


def _reason(reason: "ReasonView", said: str, ended: bool) -> list[Text]:
    lines = [] if reason.sentence in said else [plain(reason.sentence)]
    if not ended or reason.kind == ReasonKind.OPERATOR:  # of what ended the sentence says it all
        lines.append(WHO_ACTS.get(reason.kind, reason.kind))
    if reason.remedy:
        lines.append(plain(reason.remedy))
    return [Text("\n".join(f"  {line}" for line in lines))] if lines else []


def _placement(console: Console, placement: Mapping[str, Any]) -> list[RenderableType]:
    place = f"Place {placement['position']:,} of {placement['queue']:,} in the queue"
    said = f"{place} of group {placement['group']}"
    if placement["kernels"] > 1:
        fit = f"{placement['kernels_fit']:,} of {placement['kernels']:,} kernels"
        said += f"; once those ahead have started, {fit} would find room"
    parts: list[RenderableType] = [Text(f"\n{said}.")]
    for request in placement["requests"]:
        parts += _request(console, request, placement["agents"])
    return parts


def _request(console: Console, request: Mapping[str, Any], agents: int) -> list[RenderableType]:
    each = "" if request["kernels"] == 1 else " each"
    asks = f"{count(request['kernels'], 'kernel')} asking for {request['asks']}{each}"
    looked = Text(f"\n{count(agents, 'agent')} looked at for {asks}")
    if not request["groups"]:
        return [looked]
    columns = [
        Column("AGENTS", right=True),
        Column("WHAT THEY LACK", flexible=True, wraps=True),
        Column("NEAREST", drops=1),
        Column("SUCH AS", drops=2),
    ]
    rows = [_agents(group) for group in request["groups"]]
    parts: list[RenderableType] = [looked, table(console, columns, rows)]
    if request["other_agents"]:
        others = request["other_agents"]
        lack = "lacks" if others == 1 else "lack"
        parts.append(Text(f"and {count(others, 'agent')} that {lack} otherwise"))
    return parts


def _agents(group: Mapping[str, Any]) -> Sequence[Text | str]:
    lacks = "; ".join(plain(reason["sentence"]) for reason in group["lacks"])
    return [
        f"{group['agents']:,}",
        lacks or Text("nothing: there is room", style="green"),
        group["nearest"] if group["lacks"] else "",
        ", ".join(group["examples"]),
    ]
