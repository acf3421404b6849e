"""Notices: methods of both clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from muster.client.encoding import json_of
from muster.client.exchange import Exchange, exchange
from muster.client.resource import Resource, ResourceCalls
from muster.core.ids import IdKind
from muster.core.views.notices import NoticePage, NoticeView

TRIAL_S = 70.0
"""How much longer than other answers the answer to a trial may take, in seconds."""


NOTICES = Resource(
    "notice", IdKind.NOTICE, "/v1/notices", NoticeView, NoticePage, is_cancelled=False
)


class Notices(ResourceCalls):
    """Channels that are told of the end of work."""

    resources: ClassVar[Sequence[Resource[Any, Any]]] = (NOTICES,)

    @exchange
    def notices(
        self, state: str = "live", *, owner: str | None = None, limit: int = 100
    ) -> Exchange[list[NoticeView]]:
        """Notices, newest first.

        Args:
            state: ``live`` (not sent yet), ``ended``, ``all``, or one state.
            owner: only this user's, or this ``domain/project/user``'s; for admins.
            limit: how many at most.
        """
        pages = yield from self._list(NOTICES, limit, {"state": state, "owner": owner})
        return [notice for page in pages for notice in page.items]

    @exchange
    def notice(self, ref: str) -> Exchange[NoticeView]:
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
            NoticeView, self._send("POST", path, body=body, repeat=False, extra_s=TRIAL_S)
        )
