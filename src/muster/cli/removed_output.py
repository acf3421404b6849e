"""Output of work that agents have removed, and why, as `muster show` tells it."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from rich.text import Text

from muster.cli import kinds
from muster.cli.kinds.kind import WorkKind
from muster.cli.kinds.outputs import Extent
from muster.cli.streams import plain
from muster.client.errors import OutputRemoved
from muster.core.errors import MusterError

if TYPE_CHECKING:
    from muster.cli.kinds.outputs import Outputs
    from muster.client import Client
    from muster.core.views.base import RecordView

MOST_ASKED = 10
"""Parts of work whose output is asked for."""


def removed_outputs(client: "Client", found: "RecordView", part: int | None) -> list[Text]:
    """A line for each part of the work whose latest output was removed, of one ``part`` or of the
    first few. Only agents that are connected are asked; they alone know. What cannot be read is
    left out."""
    kind = kinds.of_record(found)
    if not isinstance(kind, WorkKind) or kind.outputs is None:
        return []
    try:
        return [Text(plain(line)) for line in _removed(client, kind.outputs, found, part)]
    except MusterError:
        return []


def _removed(
    client: "Client", outputs: "Outputs[Any]", found: "RecordView", part: int | None
) -> Iterator[str]:
    indexes: Iterable[int] = [part] if part is not None else outputs.indexes(found)
    alive: set[str] | None = None
    for index in islice(indexes, MOST_ASKED):
        kernels = outputs.runs(client, found, index).kernels
        if not kernels or kernels[-1].started_at is None or kernels[-1].ended_at is None:
            continue
        if alive is None:
            alive = {agent.id for agent in client.agents() if agent.status == "ALIVE"}
        if kernels[-1].agent_id not in alive:
            continue
        extent = Extent(None, every=False, tail_bytes=1, follow=False, on_cut=lambda _: None)
        try:
            for _ in outputs.pieces(client, found.id, index, extent):
                break
        except OutputRemoved as error:
            yield f"{outputs.part} {index}: {error}"
