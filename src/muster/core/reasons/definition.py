"""The texts of a reason."""

from dataclasses import dataclass

from muster.core.reasons.codes import ReasonKind

WAITING, LIMIT, REQUEST, OPERATOR = (
    ReasonKind.WAITING,
    ReasonKind.LIMIT,
    ReasonKind.REQUEST,
    ReasonKind.OPERATOR,
)


@dataclass(frozen=True, slots=True)
class Definition:
    """``template`` is filled with the reason's numbers; ``remedy`` says what a person can do, and
    is empty where nothing can be done.

    ``{n:agent}`` becomes "1 agent", "2 agents". ``{n:=}`` becomes the amount n as a person writes
    it; the reason's number ``unit`` (``core.resources.Unit``, or "price") names the unit of n.
    ``{n:>}`` becomes the differences n of a setting (``core.settings``): "limits.gpu: 8 → 10".
    ``{n:~}`` becomes n seconds as a length of time: "1m35s". ``{n:?text}`` becomes the text if the
    reason has an n that is not 0, ``{n:!text}`` if it has none; the text may hold numbers of the
    reason."""

    kind: ReasonKind
    template: str
    remedy: str = ""
