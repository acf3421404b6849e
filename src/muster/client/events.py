"""Following what changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from muster.client.transport import StreamBroke

if TYPE_CHECKING:
    from muster.client.transport import Transport
    from muster.core.views import EventView

PATIENCE_S = 60.0
"""How long a controller that starts again is waited for."""
SILENCE_S = 60.0
"""Longest silence; the server says every 15 s that it is still there."""
_PAUSE_S = 0.2
"""Before the next answer, when one has ended."""
_DATA = "data: "


def read_events(
    transport: Transport, pause: Callable[[float], None] = time.sleep
) -> Iterator[EventView]:
    """Events for ever; when an answer ends the next is asked for, which begins with a ``reset``."""
    import msgspec

    from muster.core.views import EventView

    while True:
        try:
            with transport.stream(
                "/v1/events", {}, silence_s=SILENCE_S, patience_s=PATIENCE_S
            ) as response:
                for line in response.iter_lines():
                    if line.startswith(_DATA):
                        yield msgspec.json.decode(line.removeprefix(_DATA), type=EventView)
        except StreamBroke:
            pass
        pause(_PAUSE_S)
