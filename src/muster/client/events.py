"""Following the events of a cluster."""

from __future__ import annotations

import msgspec

from muster.client.exchange import Give, Pause, Read, Request, Stream, StreamBroke
from muster.client.output import Ask
from muster.core.views.events import EventView

PATIENCE_S = 60.0
"""How long a restarting controller is waited for."""
SILENCE_S = 60.0
"""Longest silence; the server says every 15 s that it is still there."""
_PAUSE_S = 0.2
"""The pause after the end of an answer."""
_DATA = b"data: "
_MAX_LINE_BYTES = 2**20
"""The longest line of an event; a longer one does not come from a controller."""


def read_events(ask: Ask, kind: str | None = None) -> Stream:
    """Events for ever, or only those of one kind of records. When an answer ends another is asked
    for, which begins with a ``reset``."""
    while True:
        try:
            yield from ask(
                Request("GET", "/v1/events", timeout_s=SILENCE_S, opens=True), PATIENCE_S
            )
            rest = b""
            while piece := (yield Read()):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if line.startswith(_DATA):
                        event = msgspec.json.decode(line.removeprefix(_DATA), type=EventView)
                        if kind is None or event.kind in (kind, "reset"):
                            yield Give(event)
                if len(rest) > _MAX_LINE_BYTES:
                    break
        except StreamBroke:
            pass
        yield Pause(_PAUSE_S)
