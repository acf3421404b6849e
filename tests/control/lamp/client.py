"""Lamps in the client."""

from tests.control.lamp.api import LampPage, LampView

from muster.client import AsyncClient, Client
from muster.client.resource import ClientResource, RecordViews, newest

LAMPS = ClientResource(
    name="lamp",
    prefix="lmp",
    path="/v1/lamps",
    views=lambda: RecordViews(LampView, LampView, LampPage),
    listing=newest,
    is_handed_in=True,
    is_cancelled=True,
)


class LampClient(Client):
    """A client that knows lamps too."""

    lamps = LAMPS


class AsyncLampClient(AsyncClient):
    """Its twin."""

    lamps = LAMPS
