"""Both clients, as they would be if lamps were the product's."""

from tests.control.lamp.client import LampCalls

from muster.client import AsyncClient, Client


class LampClient(LampCalls, Client):
    """A client that knows lamps too."""


class AsyncLampClient(LampCalls, AsyncClient):
    """Its twin."""
