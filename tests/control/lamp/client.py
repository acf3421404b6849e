"""Lamps in the client."""

from collections.abc import Sequence
from typing import Any, ClassVar

from tests.control.lamp.api import LampPage, LampView

from muster.client import Client
from muster.client.resource import Resource, ResourceCalls

LAMPS = Resource("lamp", "lmp", "/v1/lamps", LampView, LampPage, LampView)


class Lamps(ResourceCalls):
    resources: ClassVar[Sequence[Resource[Any, Any]]] = (LAMPS,)


class LampClient(Client, Lamps):
    """A client that knows lamps too."""
