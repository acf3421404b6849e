"""A recovery as `muster show` tells it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from muster.cli.described.record import ago, heading, sentences
from muster.cli.screen import fields
from muster.cli.streams import plain
from muster.cli.words import count, duration, moment, sentence_of

if TYPE_CHECKING:
    from muster.core.views.recoveries import RecoveryDetail, RoundAgentView, RoundView


def recovery_parts(recovery: "RecoveryDetail", now: float) -> list[RenderableType]:
    """A recovery: its job, what it waits for, its rounds, and what they cost."""
    left_out = recovery.rounds_begun - len(recovery.rounds)
    return [
        heading(recovery.name, recovery.status, recovery.id),
        fields(
            [
                ("reason", sentences(recovery.reason)),
                ("job", recovery.job),
                ("restarts", str(recovery.restarts)),
                ("ran", _ratio(recovery, now)),
                ("lost", _lost(recovery, now)),
                ("times", _times(recovery, now)),
                ("rounds", f"the first {left_out:,} are not kept" if left_out > 0 else None),
            ]
        ),
        *(fields([(f"round {each.number}", _round(each, now))]) for each in recovery.rounds),
    ]


def _ratio(recovery: "RecoveryDetail", now: float) -> str | None:
    ratio = recovery.training_ratio(now)
    return None if ratio is None else f"{ratio:.1%} of the time since its first start"


def _lost(recovery: "RecoveryDetail", now: float) -> str | None:
    hours = recovery.gpu_hours_lost
    hours += sum(each.gpu_hours_lost(now) for each in recovery.rounds if each.ended_at is None)
    return f"{hours:,.2f} GPU-hours" if hours else None


def _times(recovery: "RecoveryDetail", now: float) -> str:
    said = f"made {moment(recovery.created_at)}"
    if recovery.finished_at is not None:
        return f"{said}, ended {ago(recovery.finished_at, now)}"
    return f"{said}, {recovery.status.lower()} for {duration(now - recovery.status_changed_at)}"


def _round(round_: "RoundView", now: float) -> Text:
    lines = [
        f"{moment(round_.began_at)}: {sentence_of(round_.why)}",
        *(_agent(each) for each in round_.agents),
        ", ".join(_phases(round_, now)),
    ]
    if round_.outcome is not None:
        lines.append(sentence_of(round_.outcome))
    return Text("\n".join(plain(line) for line in lines if line))


def _agent(agent: "RoundAgentView") -> str:
    said = f"agent {agent.agent}: {agent.result}"
    if agent.heals:
        said += f" after {count(agent.heals, 'heal')}"
    return f"{said}: {agent.said}" if agent.said else said


def _phases(round_: "RoundView", now: float) -> Iterator[str]:
    """How long each phase of a round took."""
    ended_at = now if round_.ended_at is None else round_.ended_at
    checked_at = round_.checked_at or ended_at
    yield f"checked for {duration(checked_at - round_.began_at)}"
    if round_.checked_at is not None:
        healed_at = round_.healed_at or ended_at
        yield f"healed for {duration(healed_at - checked_at)}"
        if round_.healed_at is not None:
            yield f"restarted for {duration(ended_at - healed_at)}"
