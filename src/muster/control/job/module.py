"""Jobs and their tasks, as the control plane composes them."""

from muster.control.engine.module import Context, Declared, Module
from muster.control.job.derive import DeriveJobs, JobLifecycle
from muster.control.job.expand import ExpandJobs
from muster.control.job.requests import JobRequests
from muster.control.job.settle import SettleTasks
from muster.control.session.board import Board
from muster.control.session.lifecycle import SessionLifecycle


class JobModule(Module):
    def declare(self, context: Context) -> Declared:
        board, sessions = context.parts[Board], context.parts[SessionLifecycle]
        return Declared(
            lifecycles=[JobLifecycle(board)],
            handlers=[ExpandJobs(board), SettleTasks(board), DeriveJobs(sessions, board)],
            offers=[JobRequests(board, sessions)],
        )
