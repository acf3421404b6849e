"""Notices, as the control plane composes them."""

from muster.control.engine.effects import Surroundings
from muster.control.engine.module import Context, Declared, EntityModule
from muster.control.notice.ends import TellEndsOfJobs, TellEndsOfSessions, Writer
from muster.control.notice.entity import NOTICE
from muster.control.notice.lifecycle import NoticeLifecycle, SendNotices, TakeTurns
from muster.control.notice.performer import NoticeSender
from muster.control.notice.requests import NoticeRequests
from muster.control.notice.settings import load_settings
from muster.control.notice.turns import Turns


class NoticeModule(EntityModule):
    """
    Raises:
        InvalidSpec: the operator's settings are wrong.
    """

    entities = (NOTICE,)

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self._settings = load_settings(surroundings.settings)
        self._reach = self._settings.reach(on_loopback=surroundings.on_loopback)
        self.performers = (NoticeSender(surroundings, self._settings, self._reach),)

    def declare(self, context: Context) -> Declared:
        turns = Turns(context.store.live)
        writer = Writer(turns)
        return Declared(
            lifecycles=[NoticeLifecycle(turns)],
            handlers=[
                TakeTurns(turns),
                SendNotices(),
                TellEndsOfJobs(writer),
                TellEndsOfSessions(writer),
            ],
            offers=[NoticeRequests(writer, self._settings, self._reach)],
        )
