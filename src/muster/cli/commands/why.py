"""``muster why``."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.text import Text

from muster.cli.arguments import AsJson, Ref
from muster.cli.screen import Column, plain, print_json, status, stdout, table, write
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
        answer = client.why(ref.partition("/")[0])  # a task waits for what its job waits for
    if as_json:
        print_json(answer)
        return
    console = stdout()
    write(console, *explanation(console, answer))


def explanation(console: Console, why: "WhyView") -> list[RenderableType]:
    """The verdict, every reason with what to do, and what the agents lack."""
    parts: list[RenderableType] = [
        Text.assemble(status(why.status), "  ", (plain(why.verdict), "bold"))
    ]
    ended = why.status in _ENDED
    parts += [_reason(reason, why.verdict, ended) for reason in why.reasons]
    if why.placement:
        parts += _placement(console, why.placement)
    return parts


def _reason(reason: "ReasonView", verdict: str, ended: bool) -> Text:
    lines = [] if reason.sentence in verdict else [plain(reason.sentence)]
    if not (ended and reason.kind == ReasonKind.WAITING):  # nothing is waited for any more
        lines.append(WHO_ACTS.get(reason.kind, reason.kind))
    if reason.remedy:
        lines.append(plain(reason.remedy))
    return Text("\n".join(f"  {line}" for line in lines))


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
        parts.append(Text(f"and {count(request['other_agents'], 'agent')} that lack otherwise"))
    return parts


def _agents(group: Mapping[str, Any]) -> Sequence[Text | str]:
    lacks = "; ".join(plain(reason["sentence"]) for reason in group["lacks"])
    return [
        f"{group['agents']:,}",
        lacks or Text("nothing: there is room", style="green"),
        group["nearest"] if group["lacks"] else "",
        ", ".join(group["examples"]),
    ]
