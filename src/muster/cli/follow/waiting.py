"""Waiting for the end of work that is not followed."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from muster.cli.cluster import Cluster
from muster.cli.follow.feed import LostSight, away_line, back_line
from muster.cli.follow.interrupt import Interrupts, told_to_end
from muster.cli.streams import say
from muster.core.views.base import RecordView

if TYPE_CHECKING:
    from muster.cli.kinds.kind import WorkKind
    from muster.client import Client

V = TypeVar("V", bound=RecordView)
D = TypeVar("D", bound=RecordView)

LOOK_S = 0.5


def wait_until_ended(
    cluster: Cluster,
    kind: "WorkKind[V, D]",
    accepted: V,
    look: "Callable[[Client], D]",
    *,
    quiet: bool,
) -> tuple[V | D, int]:
    """The work once it has ended, and its exit code; or the work as it was accepted, once this
    process was told to end. Unless ``quiet`` the end is told on stderr.

    Args:
        look: asks for the work.

    Raises:
        LostSight: nobody answers any more.
    """
    with Interrupts() as interrupts:
        try:
            with interrupts.raised():
                ended = _ended(cluster, kind, look)
        except KeyboardInterrupt:
            if interrupts.told_to_end is None:
                raise
            name = kind.name_of(accepted) or accepted.id
            return accepted, told_to_end(interrupts.told_to_end, cluster, accepted.id, name, say)
    if not quiet:
        say(kind.sentence_on(ended))
    return ended, kind.exit_code(ended)


def _ended(cluster: Cluster, kind: "WorkKind[V, D]", look: "Callable[[Client], D]") -> D:
    from muster.client import Unreachable

    def heard(answers: bool) -> None:
        say(back_line(client.url) if answers else away_line(client.url))

    with cluster.client(on_contact=heard) as client:
        try:
            while not kind.ended(found := look(client)):
                time.sleep(LOOK_S)
        except Unreachable as error:
            raise LostSight(error) from None
    return found
