"""The order of notices, and those being sent: a user's many notices wait for each other, and other
users' do not wait for them."""

from collections.abc import Sequence
from itertools import chain, islice, zip_longest

from muster.control.notice.entity import Notice
from muster.control.notice.states import NoticeStatus
from muster.store.live import Live

MAX_SENDING = 32
"""Notices that are handed to the performer at a time: as many as its queue holds."""
MAX_SENDING_OF_ONE = 8
"""Notices of one user among these, at most."""


class Turns:
    """Waiting notices, and notices being sent, by their users."""

    def __init__(self, live: Live) -> None:
        self._waiting: dict[tuple[str, str], dict[Notice, None]] = {}
        self._sending: dict[tuple[str, str], dict[Notice, None]] = {}
        for notice in live.of(Notice).values():
            self.note(notice)

    def note(self, notice: Notice) -> None:
        """Take note of a new notice, or of one with another status."""
        user = (notice.owner.domain, notice.owner.user)
        for status, of_users in (
            (NoticeStatus.PENDING, self._waiting),
            (NoticeStatus.SENDING, self._sending),
        ):
            if notice.status is status:
                of_users.setdefault(user, {})[notice] = None
            elif user in of_users:
                of_users[user].pop(notice, None)
                if not of_users[user]:
                    del of_users[user]

    def next(self) -> Sequence[Notice]:
        """The notices whose turn it is, the users in turn, each user's oldest first."""
        if not self._waiting:
            return ()
        free = MAX_SENDING - sum(map(len, self._sending.values()))
        queues = [
            islice(waiting, MAX_SENDING_OF_ONE - len(self._sending.get(user, ())))
            for user, waiting in self._waiting.items()
        ]
        in_turn = chain.from_iterable(zip_longest(*queues))
        return [*islice((notice for notice in in_turn if notice is not None), max(free, 0))]
