"""Operators' settings for notices: `notices.yaml` in the data directory."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from muster.control.engine.settings_file import load_settings_file
from muster.control.notice.addresses import Reach
from muster.core.errors import InvalidSpec, Problem
from muster.core.specs.amounts import Flag, Spec
from muster.core.specs.notify import scheme_of

FILE = "notices.yaml"
SERVICES = (
    *("https", "http", "json", "jsons", "form", "forms", "xml", "xmls", "mailto", "mailtos"),
    *("slack", "discord", "tgram", "msteams", "workflows", "gchat", "wxteams", "zulip"),
    *("mmost", "mmosts", "rocket", "rockets", "matrix", "matrixs", "gotify", "gotifys"),
    *("ntfy", "ntfys", "pover", "pagerduty", "opsgenie", "sns"),
)
"""Webhooks, mail, and the chat services that most people know."""
_LOCAL = frozenset(
    {"dbus", "gio", "glib", "gnome", "kde", "qt", "macosx", "windows", "growl"}
    | {"syslog", "rsyslog", "file", "smpp", "mqtt", "mqtts", "memory", "exec", "plugin"}
)
"""Services that act on the controller's own machine, or whose protocol no check of addresses
sees."""


class NoticeSettings(Spec):
    """How far notices may go.

    Args:
        schemes: the services that users may name.
        loopback: whether channels may be on the controller's own machine; by default they may if
            only that machine can reach the controller.
        private: whether channels may be in private networks; the default is that of ``loopback``.
    """

    kind: Literal["notices"] = "notices"
    schemes: Annotated[
        tuple[Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9+.-]{0,31}$")], ...],
        Field(max_length=200),
    ] = SERVICES
    loopback: Flag | None = None
    private: Flag | None = None

    def reach(self, *, on_loopback: bool) -> Reach:
        loopback = on_loopback if self.loopback is None else self.loopback
        private = on_loopback if self.private is None else self.private
        return Reach(loopback, private)

    def allows(self, url: str) -> bool:
        return scheme_of(url) in self.schemes


def load_settings(folder: Path | None) -> NoticeSettings:
    """The operators' settings, with defaults for the rest.

    Raises:
        InvalidSpec: the file is wrong, or names a service of the machine itself.
    """
    if folder is None:
        return NoticeSettings()
    settings = load_settings_file(NoticeSettings, folder / FILE)
    if local := sorted(_LOCAL.intersection(settings.schemes)):
        expected = "expected services elsewhere: these act on the controller's machine"
        raise InvalidSpec([Problem(f"{FILE}: schemes", ", ".join(local), expected)])
    return settings
