"""The channels that are told of the end of work, as people write them."""

import re
from enum import StrEnum
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from muster.core.specs.amounts import Spec
from muster.core.text import check_text

MAX_CHANNELS = 8
"""Channels of one job or session."""
MAX_URL = 1024
"""Characters of a channel's URL."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}://[!-~…]+")
_HOSTED = frozenset({"http", "https", "gotify", "gotifys", "mmost", "mmosts", "rocket", "rockets"})
_HOSTED |= {"json", "jsons", "xml", "xmls", "form", "forms", "mailto", "mailtos"}
"""Schemes whose URLs have a machine's name after ``://``; URLs of other services may have a part of
a token there."""


class NotifyOn(StrEnum):
    """The ends of work of which a channel is told."""

    END = "end"
    FAILURE = "failure"  # every end but success
    SUCCESS = "success"


def scheme_of(url: str) -> str:
    return url.partition("://")[0].lower()


def host_of(url: str) -> str | None:
    """The machine that a URL names, where its scheme says that it names one."""
    if scheme_of(url) not in _HOSTED:
        return None
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def shown_url(url: str) -> str:
    """A channel's URL as it may be shown: the service, and the machine where that is no secret.

    Apprise's own short form keeps paths and headers of webhooks, in which tokens are common.
    """
    return f"{scheme_of(url)}://{host_of(url) or ''}…"


def _url(value: str) -> str:
    """
    Raises:
        ValueError: it is no URL, or too long; the text has nothing of the URL in it.
    """
    if _URL.fullmatch(check_text(value, MAX_URL)) is None:
        raise ValueError(
            "expected a URL of a channel, such as https://HOST/PATH, slack://… or mailto://…"
        )
    return value


ChannelUrl = Annotated[str, AfterValidator(_url), Field(repr=False)]


class Channel(Spec):
    """Somewhere to send a notice: written as its URL, or as fields.

    Args:
        url: a webhook (`https://HOST/PATH`, which gets JSON), or any URL of Apprise whose service
            the operator allows. It is a secret: shown shortened, and never read back.
        on: the ends that are told: all (`end`), all but success (`failure`), or `success`. With the
            first two it is also told, in advance, that work has to leave a machine.
    """

    url: ChannelUrl
    on: NotifyOn = NotifyOn.END

    def wants(self, *, success: bool) -> bool:
        """Whether an end is to be told."""
        return self.on is NotifyOn.END or (self.on is NotifyOn.SUCCESS) is success

    @property
    def wants_departures(self) -> bool:
        """Whether it is to be told that work has to leave a machine."""
        return self.on is not NotifyOn.SUCCESS

    @property
    def shown(self) -> str:
        return shown_url(self.url)


def _channel(value: Any) -> Any:
    if isinstance(value, str):
        return {"url": value}
    if isinstance(value, dict):
        return {"on" if key is True else key: each for key, each in value.items()}  # YAML's "on"
    return value


def _channels(value: Any) -> Any:
    return [value] if isinstance(value, str | dict) else value


Channels = Annotated[
    tuple[Annotated[Channel, BeforeValidator(_channel)], ...],
    BeforeValidator(_channels),
    Field(max_length=MAX_CHANNELS),
]


class TrialSpec(Spec):
    """A notice to try a channel with.

    Args:
        url: of the channel.
    """

    kind: Literal["trial"] = "trial"
    url: ChannelUrl
