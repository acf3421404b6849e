"""Lamps in the client."""

from tests.control.lamp.views import LampPage, LampView

from muster.client.resource import ClientResource, RecordViews, ResourceCalls, newest

LAMPS = ClientResource(
    name="lamp",
    prefix="lmp",
    path="/v1/lamps",
    views=lambda: RecordViews(LampView, LampView, LampPage),
    listing=newest,
    is_handed_in=True,
    is_cancelled=True,
)


class LampCalls(ResourceCalls):
    """The part of both clients that is about lamps."""

    lamps = LAMPS
