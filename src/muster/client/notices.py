"""Notices, as both clients have them."""

from __future__ import annotations

from muster.client.calls import Calls
from muster.client.encoding import json_of
from muster.client.exchange import Exchange, exchange
from muster.core.notices import NoticeView

TRIAL_S = 70.0
"""How much longer than others the answer to a trial may take."""


class Notices(Calls):
    """Channels that are told of the end of work."""

    @exchange
    def try_channel(self, url: str) -> Exchange[NoticeView]:
        """Send a notice to a channel, as at the end of work but once, and wait for what becomes of
        it: SENT, or FAILED for a reason.

        Raises:
            InvalidSpec: the cluster sends nothing there.
        """
        answer = yield from self._send(
            "POST", "/v1/notices/trial", body=json_of({"url": url}), repeat=False, extra_s=TRIAL_S
        )
        return self._read(NoticeView, answer)
