"""Notices, as the control plane composes them."""

from muster.control.engine.declared import Declared
from muster.control.engine.effects import Surroundings
from muster.control.engine.module import Context, EntityModule
from muster.control.notice.ends import TellEndsOfJobs, TellEndsOfSessions, Writer
from muster.control.notice.entity import NOTICE
from muster.control.notice.leave_notices import TellDepartures
from muster.control.notice.lifecycle import NoticeLifecycle, SendNotices, TakeTurns
from muster.control.notice.performer import NoticeSender
from muster.control.notice.requests import ChannelPolicy, NoticeRequests
from muster.control.notice.settings import load_settings
from muster.control.notice.turns import NoticeTurns
from muster.core.specs.amounts import Spec
from muster.core.specs.notify import Channels


class NoticeModule(EntityModule):
    """Declares notices, and checks the channels that specs name.

    Raises:
        InvalidSpec: the operator's settings are wrong.
    """

    entities = (NOTICE,)

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        settings = load_settings(surroundings.settings)
        reach = settings.reach(on_loopback=surroundings.on_loopback)
        self._policy = ChannelPolicy(settings, reach)
        self.performers = (NoticeSender(surroundings, settings, reach),)

    def check(self, spec: Spec) -> None:
        channels: Channels = getattr(spec, "notify", ())
        self._policy.check({f"notify.{index}": each for index, each in enumerate(channels)})

    def declare(self, context: Context) -> Declared:
        turns = NoticeTurns(context.store.live)
        notices = NoticeLifecycle(turns)
        writer = Writer(turns, notices)
        return Declared(
            lifecycles=[notices],
            handlers=[
                TakeTurns(turns),
                SendNotices(turns),
                TellEndsOfJobs(writer),
                TellEndsOfSessions(writer),
                TellDepartures(writer),
            ],
            offers=[writer, NoticeRequests(writer, self._policy)],
        )
