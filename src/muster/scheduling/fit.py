"""Finding room for kernels inside a statement: the one place where agents are chosen."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from muster.core.errors import MusterError
from muster.core.ids import AgentId
from muster.core.resources import Resources
from muster.scheduling.columns import Floats, Ints, Shares
from muster.scheduling.outcome import KernelPlacement
from muster.scheduling.plugins import AgentSelector
from muster.scheduling.snapshot import Snapshot
from muster.scheduling.statement import Statement
from muster.scheduling.workload import by_request

_PICKS = 8  # so many maxima are found faster by looking than by sorting


@dataclass(frozen=True, slots=True)
class Fit:
    """How many of a session's kernels found room, and where, if all did."""

    placed: int
    kernels: tuple[KernelPlacement, ...] | None = None


def fit_session(
    statement: Statement,
    selector: AgentSelector,
    kernels: tuple[Resources, ...],
    failed_agents: frozenset[AgentId],
) -> Fit:
    """Take room for all ``kernels`` together, or for none.

    Exact when all ask the same; otherwise the most demanding are placed first, each greedily.
    """
    requests = by_request(kernels)
    if len(requests) == 1:
        columns = statement.snapshot.columns
        request = kernels[0]
        room = columns.copies(request, columns.fitting(request), len(kernels))
        if int(room.sum()) < len(kernels):
            return Fit(int(room.sum()))
    mark = statement.mark()
    placed = 0
    places: list[KernelPlacement | None] = [None] * len(kernels)
    for request, indexes in requests:
        found = fill(statement, selector, request, len(indexes), failed_agents)
        placed += len(found)
        for index, place in zip(indexes, found, strict=False):
            places[index] = place
    if placed < len(kernels):
        statement.rollback(mark)
        return Fit(placed)
    return Fit(placed, tuple(place for place in places if place is not None))


def fill(
    statement: Statement,
    selector: AgentSelector,
    request: Resources,
    count: int,
    failed_agents: frozenset[AgentId],
) -> list[KernelPlacement]:
    """Take room for up to ``count`` kernels with equal requests, one after the other.

    Fewer are answered when there is no more room. Agents in ``failed_agents`` come last.

    Raises:
        MusterError: the selector answers nonsense.
    """
    snapshot = statement.snapshot
    failed = snapshot.slots_among(failed_agents)
    found: list[KernelPlacement] = []
    while len(found) < count:
        candidates = snapshot.columns.fitting(request)
        if failed and not np.isin(candidates, failed).all():
            candidates = candidates[~np.isin(candidates, failed)]
        if not candidates.size:
            break
        left = count - len(found)
        scores = _scores(selector, request, statement, candidates)
        if left == 1 or not selector.packs:
            slot = int(candidates[scores.argmax()])
            found += _take(statement, selector, request, slot, 1)
            continue
        copies = snapshot.columns.copies(request, candidates, left)
        for best in _best_first(scores):
            number = min(int(copies[best]), left)
            found += _take(statement, selector, request, int(candidates[best]), number)
            left -= number
            if not left:
                break
    return found


def devices_at(
    snapshot: Snapshot, selector: AgentSelector, request: Resources, agent_id: AgentId
) -> Shares | None:
    """The devices that one kernel asking for ``request`` would get on this agent now; None if it
    has no room."""
    slot, columns = snapshot.slot(agent_id), snapshot.columns
    if not columns.accepting[slot] or columns.copies(request, np.array([slot]), 1)[0] < 1:
        return None
    return selector.devices(request, snapshot, slot) if request.gpu_milli else ()


def _scores(
    selector: AgentSelector, request: Resources, statement: Statement, candidates: Ints
) -> Floats:
    scores = selector.score(request, statement.snapshot, candidates)
    if scores.shape != candidates.shape or not np.isfinite(scores).all():
        raise MusterError(
            f"selector {type(selector).__name__} must answer a finite number for each of "
            f"{candidates.size} agents; it answered {scores!r}"
        )
    return scores


def _best_first(scores: Floats) -> Iterator[int]:
    """Indexes by falling score, the lower index first among equals."""
    scores = scores.copy()
    for _ in range(min(_PICKS, scores.size)):
        best = int(scores.argmax())
        yield best
        scores[best] = -np.inf
    rest = scores.size - _PICKS
    if rest > 0:
        yield from np.argsort(-scores, kind="stable")[:rest].tolist()


def _take(
    statement: Statement, selector: AgentSelector, request: Resources, slot: int, copies: int
) -> list[KernelPlacement]:
    """Take ``copies`` in ``slot``, where they fit."""
    agent_id = statement.snapshot.facts(slot).id
    if not request.gpu_milli:
        statement.take(slot, request, copies=copies)
        return [KernelPlacement(agent_id)] * copies
    found = []
    for _ in range(copies):
        shares = selector.devices(request, statement.snapshot, slot)
        statement.take(slot, request, shares)
        found.append(KernelPlacement(agent_id, shares))
    return found
