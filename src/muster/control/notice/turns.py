"""The order of attempts to send notices: a user's notices wait for each other, and never delay
those of other users."""

from collections.abc import Sequence
from itertools import chain, islice, zip_longest

from muster.control.notice.entity import Notice
from muster.control.notice.states import NoticeStatus
from muster.core.owner import Owner
from muster.store.live import Live

MAX_SENDING = 32
"""Notices that are handed to the performer at a time: as many as its queue holds."""
MAX_SENDING_OF_ONE = 8
"""Notices of one user among these, at most."""

_OfUsers = dict[tuple[str, str], dict[Notice, None]]


class NoticeTurns:
    """Notices that wait for an attempt, and notices whose attempt is under way, by their users.

    A notice between two tries is in neither group, so that a channel that does not answer delays no
    other notice until the next try.
    """

    def __init__(self, live: Live) -> None:
        self._waiting: _OfUsers = {}  # the user whose turn is next comes first
        self._sending: _OfUsers = {}
        for notice in live.of(Notice).values():
            if notice.status is NoticeStatus.PENDING:
                self.wait(notice)

    def waiting_of(self, owner: Owner) -> int:
        """How many notices of a user wait for an attempt."""
        return len(self._waiting.get((owner.domain, owner.user), ()))

    def wait(self, notice: Notice) -> None:
        """The notice waits for an attempt from now on, or goes on waiting."""
        self._waiting.setdefault(_user(notice), {})[notice] = None

    def begin(self, notice: Notice) -> None:
        """The notice's attempt is under way; its user's next turn comes after all others'."""
        self.leave(notice)
        user = _user(notice)
        self._sending.setdefault(user, {})[notice] = None
        if user in self._waiting:
            self._waiting[user] = self._waiting.pop(user)

    def leave(self, notice: Notice) -> None:
        """The notice neither waits nor is being sent."""
        user = _user(notice)
        for of_users in (self._waiting, self._sending):
            if user in of_users:
                of_users[user].pop(notice, None)
                if not of_users[user]:
                    del of_users[user]

    def next(self) -> Sequence[Notice]:
        """The notices whose turn it is: one of each user in turn, each user's oldest first. The
        answer changes only when one of them begins."""
        if not self._waiting:
            return ()
        free = MAX_SENDING - sum(map(len, self._sending.values()))
        queues = [
            islice(waiting, max(MAX_SENDING_OF_ONE - len(self._sending.get(user, ())), 0))
            for user, waiting in self._waiting.items()
        ]
        in_turn = chain.from_iterable(zip_longest(*queues))
        return [*islice((notice for notice in in_turn if notice is not None), max(free, 0))]


def _user(notice: Notice) -> tuple[str, str]:
    return notice.owner.domain, notice.owner.user
