"""Sessions and their kernels, as the control plane composes them."""

from muster.control.engine.module import Context, Declared, Module
from muster.control.session.barrier import OpenBarriers
from muster.control.session.board import Board
from muster.control.session.facts import Facts
from muster.control.session.lifecycle import SessionLifecycle
from muster.control.session.prepare import PrepareSessions
from muster.control.session.promote import (
    DetectTermination,
    EnforceTimeout,
    PromoteToPrepared,
    PromoteToRunning,
    PromoteToTerminated,
)
from muster.control.session.requests import SessionRequests
from muster.control.session.schedule import ScheduleNewSessions
from muster.control.session.start import StartSessions
from muster.control.session.terminate import TerminateSessions


class SessionModule(Module):
    def declare(self, context: Context) -> Declared:
        store = context.store
        board = Board(store.live, context.past, store.asked)
        sessions = SessionLifecycle(board)
        return Declared(
            lifecycles=[sessions],
            handlers=[
                ScheduleNewSessions(board, sessions),
                PrepareSessions(),
                PromoteToPrepared(),
                StartSessions(board),
                OpenBarriers(),
                PromoteToRunning(),
                DetectTermination(),
                EnforceTimeout(),
                TerminateSessions(),
                PromoteToTerminated(),
            ],
            offers=[board, sessions, Facts(sessions, board), SessionRequests(board, sessions)],
            watch=board,
        )
