"""Notices: methods of both clients."""

from __future__ import annotations

from muster.client.calls import Calls
from muster.client.encoding import json_of
from muster.client.exchange import Exchange, exchange
from muster.core.views.notices import NoticeView

TRIAL_S = 70.0
"""How much longer than other answers the answer to a trial may take, in seconds."""


class Notices(Calls):
    """Channels that are told of the end of work."""

    @exchange
    def try_channel(self, url: str) -> Exchange[NoticeView]:
        """Send a notice to a channel, as at the end of work but only once, and wait until it is
        SENT, or FAILED for a reason.

        Raises:
            InvalidSpec: the cluster sends no notices to this channel.
        """
        answer = yield from self._send(
            "POST", "/v1/notices/trial", body=json_of({"url": url}), repeat=False, extra_s=TRIAL_S
        )
        return self._read(NoticeView, answer)
