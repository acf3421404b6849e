"""Requests about channels, refused before anything changes."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec

from muster.control.engine.work import Work
from muster.control.notice.addresses import Reach
from muster.control.notice.ends import Writer
from muster.control.notice.entity import Notice
from muster.control.notice.message import TRIAL
from muster.control.notice.settings import NoticeSettings
from muster.core.errors import InvalidSpec, Problem
from muster.core.owner import Principal
from muster.core.specs.notify import Channel, host_of, scheme_of

INSTALL = "pip install 'muster-scheduler[notices]'"


class ChannelPolicy:
    """The channels to which notices are sent."""

    def __init__(self, settings: NoticeSettings, reach: Reach) -> None:
        self._settings = settings
        self._reach = reach

    def check(self, channels: Mapping[str, Channel]) -> None:
        """Refuse channels to which nothing would be sent.

        Args:
            channels: by the fields in which they were given.

        Raises:
            InvalidSpec: the library is missing, or the operator does not allow a service or an
                address; names are looked up when something is sent.
        """
        if not channels:
            return
        if find_spec("apprise") is None:  # found without an import
            missing = f"this controller cannot send notices; its operator can run: {INSTALL}"
            raise InvalidSpec([Problem(field, "", missing) for field in channels])
        problems = [
            Problem(field, channel.shown, wrong)
            for field, channel in channels.items()
            for wrong in self._wrong(channel.url)
        ]
        if problems:
            raise InvalidSpec(problems)

    def _wrong(self, url: str) -> Iterator[str]:
        if "…" in url:
            yield "this is how a channel is shown, without its secret: write the whole URL"
        elif not self._settings.allows(url):
            known = ", ".join(self._settings.schemes)
            yield f"{scheme_of(url)}:// is not allowed on this cluster; allowed are {known}"
        elif host := host_of(url):
            refusal = self._reach.refusal("127.0.0.1" if host == "localhost" else host)
            if refusal is not None and (host == "localhost" or _is_literal(host)):
                yield f"nothing is sent there: the address {refusal}"


def _is_literal(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdecimal()


class NoticeRequests:
    """Requests of people about channels: to try one."""

    def __init__(self, writer: Writer, policy: ChannelPolicy) -> None:
        self._writer = writer
        self._policy = policy

    def try_channel(self, work: Work, principal: Principal, channel: Channel) -> Notice:
        """Add a notice that belongs to no work, to see whether the channel takes it.

        Raises:
            InvalidSpec: see ``ChannelPolicy.check``.
        """
        self._policy.check({"url": channel})
        return self._writer.write(work, channel, TRIAL, principal.owner, None)
