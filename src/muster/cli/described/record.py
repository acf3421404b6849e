"""A record of a kind that has no words of its own; and words that several kinds share."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from muster.cli.screen import fields, status
from muster.cli.streams import plain
from muster.cli.words import duration, moment, sentence_of
from muster.client.environment import INHERITED

if TYPE_CHECKING:
    from muster.core.views.base import ReasonView, RecordView


def record_parts(record: "RecordView") -> list[RenderableType]:
    """A record of a kind that has no words of its own here: its plain fields, and its reason."""
    told = {name: getattr(record, name) for name in record.__struct_fields__}
    return [
        heading(record.id, record.status),
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
    return f"{sentence_of(reason)}. {reason.remedy}" if reason.remedy else sentence_of(reason)


def environment(processes: Iterable[Mapping[str, Any]]) -> str:
    """The names of the variables that the specs of these processes took along from whoever handed
    them in, and of those that they set."""
    taken: dict[str, None] = {}
    own: dict[str, None] = {}
    for each in processes:
        env = each.get("env") or {}
        inherited = INHERITED if each.get("environment") == "caller" else ()
        taken |= dict.fromkeys(name for name in inherited if name in env)
        own |= dict.fromkeys(name for name in env if name not in inherited)
    said = f"caller's {', '.join(taken)}" if taken else "clean"
    return plain(f"{said}; with {', '.join(own)}" if own else said)


def heading(name: str, state: str, id_: str = "") -> Text:
    heading = Text.assemble((plain(name), "bold"), "  ", status(state))
    return heading.append(f"  {id_}", style="dim") if id_ else heading


def ago(at: float, now: float) -> str:
    return f"{duration(now - at)} ago"


def times(submitted: float, started: float | None, finished: float | None, now: float) -> str:
    said = [f"submitted {moment(submitted)}"]
    if started is not None:
        said.append(f"started {duration(started - submitted)} later")
        ran = duration((finished or now) - started)
        said.append(f"ended after {ran}" if finished else f"{ran} ago")
    elif finished is not None:
        said.append(f"ended {duration(finished - submitted)} later without a start")
    else:
        said.append(f"waiting for {duration(now - submitted)}")
    return ", ".join(said)
