"""What every endpoint needs: who calls, and the parts of the controller behind the API."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from muster.api.allowance import Allowance
from muster.api.answers import Forbidden
from muster.api.auth import Access
from muster.api.changes import Changes
from muster.api.reader import Reader
from muster.api.submissions import Submissions
from muster.control.explain import Why
from muster.control.plane import ControlPlane
from muster.control.session.board import Board
from muster.core.clock import Clock
from muster.core.ids import AgentId, JobId, SessionId
from muster.core.owner import Principal, Role
from muster.store.live import Live
from muster.wire.messages import LogChunk, LogRequest

ReadLog = Callable[[AgentId, LogRequest], AsyncIterator[LogChunk]]
ExplainJob = Callable[[Live, Board, JobId, float, Principal], Why]
ExplainSession = Callable[[Live, Board, SessionId, float, Principal], Why]


@dataclass(frozen=True, slots=True)
class Api:
    """The parts behind the API, injected; ``agent_address`` is where agents on other
    machines find the controller."""

    plane: ControlPlane
    reader: Reader
    changes: Changes
    submissions: Submissions
    clock: Clock
    read_log: ReadLog
    explain_job: ExplainJob
    explain_session: ExplainSession
    access: Access
    output_readers: Allowance
    agent_address: str


@dataclass(frozen=True, slots=True)
class Caller:
    principal: Principal
    api: Api

    def must_change(self) -> None:
        """
        Raises:
            Forbidden: the caller may look only. Said before anything is looked up, so that it
                reveals nothing.
        """
        if self.principal.role is Role.VIEWER:
            raise Forbidden("your token is a viewer's: it may look, but not change anything")

    def must_be_admin(self, to: str) -> None:
        """
        Raises:
            Forbidden: the caller is no admin; ``to`` completes the sentence.
        """
        if self.principal.role is not Role.ADMIN:
            raise Forbidden(f"only an admin's token may {to}")


async def _caller(request: Request) -> Caller:
    return Caller(request.scope["principal"], request.app.state.api)


Call = Annotated[Caller, Depends(_caller)]
