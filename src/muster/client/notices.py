"""Notices: methods of both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.client.encoding import Ref, json_of
from muster.client.exchange import Exchange, exchange
from muster.client.resource import ClientResource, RecordViews, ResourceCalls, newest
from muster.core import views
from muster.core.ids import IdKind

if TYPE_CHECKING:
    from muster.core.views.notices import NoticeView

TRIAL_S = 70.0
"""How much longer than other answers the answer to a trial may take, in seconds."""


NOTICES = ClientResource(
    name="notice",
    prefix=IdKind.NOTICE,
    path="/v1/notices",
    views=lambda: RecordViews(
        views.notices.NoticeView, views.notices.NoticeView, views.notices.NoticePage
    ),
    listing=newest,
)


class Notices(ResourceCalls):
    """Channels that are told of the end of work."""

    notices = NOTICES

    @exchange
    def notice(self, ref: Ref) -> Exchange[NoticeView]:
        """One notice, by its id or a prefix of it.

        Raises:
            NotFound, Ambiguous: there is no such notice of yours; or ``ref`` means several.
        """
        return self._show(NOTICES, ref)

    @exchange
    def try_channel(self, url: str) -> Exchange[NoticeView]:
        """Send a notice to a channel, as at the end of work but only once, and wait until it is
        SENT, or FAILED for a reason.

        Raises:
            InvalidSpec: the cluster sends no notices to this channel.
        """
        path, body = f"{NOTICES.path}/trial", json_of({"url": url})
        return self._read(
            views.notices.NoticeView,
            self._send("POST", path, body=body, repeat=False, extra_s=TRIAL_S),
        )
