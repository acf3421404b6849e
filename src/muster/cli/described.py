"""An agent, a notice, or a record of any other kind as `muster show` tells it."""

from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from muster.cli.screen import fields, plain, status
from muster.cli.words import count, duration, moment
from muster.core.states import AgentBar

if TYPE_CHECKING:
    from muster.core.views.base import ReasonView, RecordView
    from muster.core.views.cluster import AgentView
    from muster.core.views.notices import NoticeView


def agent_parts(agent: "AgentView", now: float) -> list[RenderableType]:
    """An agent: its place, what it has and how much of that is free."""
    kernels = count(agent.kernels, "kernel")
    devices = (f"{each.index}: {each.model or 'gpu'}" for each in agent.devices)
    return [
        _heading(agent.name, agent.status, agent.id),
        fields(
            [
                ("reason", sentences(agent.reason)),
                ("takes work", _closed(agent.barred, agent.bar_note)),
                ("group", agent.group),
                ("host", agent.host),
                ("version", agent.version),
                ("has", agent.capacity.resources().describe()),
                ("free", agent.free.resources().describe() if agent.connected else None),
                ("gpus", plain(", ".join(devices))),
                ("runs", f"{kernels}, {agent.prefilled:,} more in its backlog"),
                (
                    "attributes",
                    plain(", ".join(f"{key}={said}" for key, said in agent.attributes.items())),
                ),
                ("times", f"joined {moment(agent.joined_at)}, {_seen(agent, now)}"),
            ]
        ),
    ]


def _seen(agent: "AgentView", now: float) -> str:
    if agent.seen_at is None:
        return "not heard since the controller started"
    return f"seen {_ago(agent.seen_at, now)}"


def notice_parts(notice: "NoticeView", now: float) -> list[RenderableType]:
    """A notice: where it goes, the work whose end it tells, and what became of it."""
    ended = f", ended {_ago(notice.finished_at, now)}" if notice.finished_at else ""
    return [
        _heading(notice.id, notice.status),
        fields(
            [
                ("reason", sentences(notice.reason)),
                ("channel", plain(notice.channel)),
                ("tells of", notice.subject or "nothing: it was a test"),
                ("failed tries", str(notice.tries) if notice.tries else None),
                ("times", f"made {moment(notice.created_at)}{ended}"),
            ]
        ),
    ]


def plain_parts(record: "RecordView") -> list[RenderableType]:
    """A record of a kind that has no words of its own here: its plain fields, and its reason."""
    told = {name: getattr(record, name) for name in record.__struct_fields__}
    return [
        _heading(record.id, record.status),
        fields(
            [
                ("reason", sentences(record.reason)),
                *(
                    (name.replace("_", " "), plain(str(value)))
                    for name, value in told.items()
                    if name not in ("id", "status") and isinstance(value, str | int | float)
                ),
            ]
        ),
    ]


def sentences(reason: "ReasonView | None") -> str | None:
    """A reason with its remedy."""
    if reason is None:
        return None
    return f"{reason.sentence}. {reason.remedy}" if reason.remedy else reason.sentence


def _heading(name: str, state: str, id_: str = "") -> Text:
    heading = Text.assemble((plain(name), "bold"), "  ", status(state))
    return heading.append(f"  {id_}", style="dim") if id_ else heading


def _closed(bar: AgentBar | None, note: str) -> str | None:
    """The answer to whether a barred agent takes new work; nothing is said of others."""
    if bar is None:
        return None
    return plain(f"no: {bar}, {note}" if note else f"no: {bar}")


def _ago(at: float, now: float) -> str:
    return f"{duration(now - at)} ago"
