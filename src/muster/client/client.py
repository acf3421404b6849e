"""``Client``: what the command line, scripts and notebooks use to talk to a cluster."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from muster.client.connection import find_connection
from muster.client.errors import Unavailable
from muster.core.errors import NotFound

if TYPE_CHECKING:
    from types import TracebackType

    from muster.client.transport import Transport
    from muster.core.specs import JobSpec, ScalingGroup, SessionSpec
    from muster.core.views import (
        AgentView,
        CancelView,
        ClusterView,
        EventView,
        GroupView,
        HealthView,
        HistoryPage,
        JobDetail,
        JobView,
        SessionDetail,
        SessionView,
        TaskDetail,
        TaskPage,
        View,
        WhyView,
    )

    V = TypeVar("V", bound=View)

PAGE = 1000
LONG_POLL_S = 25.0
"""How long one request waits for a change; proxies tend to cut what is silent for 30 s."""


class Client:
    """A connection to a cluster; not for several threads at once.

    A job is named by its id, any unique prefix of it, or its name. Requests that can be repeated
    without harm are, for a while, when the controller does not answer; ``wait`` and a following
    ``logs`` survive its restart.

    Args:
        url: of the controller; found as ``connection`` says when left out.
        token: an API token; likewise.
        timeout_s: longest wait for one answer.

    Raises (every method, beside what it names itself):
        NoConnection: no URL or no token is known.
        Unreachable: nothing answers.
        Unauthenticated: the token is wrong.
        Forbidden: the token's role does not allow it.
        Busy, Unavailable: the controller cannot do it now.
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, *, timeout_s: float = 30.0
    ) -> None:
        self._connection = find_connection(url, token)
        self._timeout_s = timeout_s
        self._opened: Transport | None = None

    @property
    def url(self) -> str:
        return self._connection.url

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- work ----------------------------------------------------------------------------------

    @overload
    def submit(self, spec: JobSpec) -> JobView: ...
    @overload
    def submit(self, spec: SessionSpec) -> SessionView: ...
    @overload
    def submit(self, spec: Mapping[str, Any]) -> JobView | SessionView: ...
    @overload
    def submit(self, **fields: Any) -> JobView: ...

    def submit(
        self, spec: JobSpec | SessionSpec | Mapping[str, Any] | None = None, **fields: Any
    ) -> JobView | SessionView:
        """Hand in work, exactly once however often the connection breaks meanwhile.

        Args:
            spec: a spec, or its keys as they stand in a file; ``kind: session`` makes a session.
            fields: in place of ``spec``, the keys of a JobSpec: ``submit(command=["date"])``.

        Raises:
            InvalidSpec: with every problem found; nothing was written.
            Conflict: the name is taken.
        """

    def jobs(
        self,
        state: str = "live",
        *,
        name: str | None = None,
        owner: str | None = None,
        limit: int = 100,
    ) -> list[JobView]:
        """Jobs, newest first.

        Args:
            state: ``live``, ``ended``, ``all``, or one state.
            name: only those of this name.
            owner: only this user's, or this ``domain/project/user``'s; for admins.
            limit: how many at most.
        """

    def job(self, ref: str) -> JobDetail:
        """One job, with its spec.

        Raises:
            NotFound: there is none of yours.
            Ambiguous: ``ref`` means several; the message names them.
        """

    def wait(
        self,
        ref: str,
        timeout_s: float | None = None,
        on_change: Callable[[JobView], None] | None = None,
    ) -> JobView:
        """Wait until a job has ended, or ``timeout_s`` has passed: look at ``ended``.

        Args:
            on_change: called with the job at first and whenever its state or counts changed.

        Raises:
            NotFound, Ambiguous: as ``job``.
        """

    def tasks(
        self, ref: str, state: str | None = None, *, offset: int = 0, limit: int = 100
    ) -> TaskPage:
        """A job's tasks by index, from the ``offset``-th on; of one ``state`` if it is given."""

    def task(self, ref: str, index: int) -> TaskDetail:
        """One task, with its attempts."""

    def sessions(
        self, state: str = "live", *, of_jobs: bool = False, limit: int = 100
    ) -> list[SessionView]:
        """Sessions, newest first; those that belong to jobs only with ``of_jobs``."""

    def session(self, ref: str) -> SessionDetail:
        """One session, with its kernels."""

    def cancel(self, ref: str) -> CancelView:
        """Cancel a job or a session; one that has ended already is left as it is."""

    def why(self, ref: str) -> WhyView:
        """Why a job or a session is where it is."""

    def history(self, ref: str, *, limit: int = 200) -> HistoryPage:
        """What happened to a job with its tasks and sessions, to one task (``job/index``), to a
        session or to an agent."""

    def logs(
        self,
        ref: str,
        *,
        task: int = 0,
        attempt: int | None = None,
        tail_bytes: int | None = None,
        follow: bool = False,
    ) -> Iterator[bytes]:
        """The output of a job's task, piece by piece.

        Args:
            attempt: from 1; the latest when left out.
            tail_bytes: only so much of its end.
            follow: go on until the task has ended, through its retries unless ``attempt`` is
                given; wait for it if it has not started.

        Raises:
            NotFound, Ambiguous: as ``job``.
            Conflict: it has not started, and ``follow`` is not set.
            AgentUnreachable: the output is on a machine that does not answer.
        """

    def session_logs(
        self, ref: str, *, kernel: int = 0, tail_bytes: int | None = None, follow: bool = False
    ) -> Iterator[bytes]:
        """The output of a session's kernel; as ``logs``."""

    # -- the cluster ---------------------------------------------------------------------------

    def agents(self, group: str | None = None) -> list[AgentView]:
        """Machines, by name; of one group if it is given."""

    def remove_agent(self, ref: str) -> AgentView:
        """Forget an agent (its name, id, or a prefix of it) that is gone for good; for admins.

        Raises:
            Conflict: it is alive, or may still run something.
        """

    def groups(self) -> list[GroupView]:
        """Scaling groups, by name."""

    def put_group(self, spec: ScalingGroup | Mapping[str, Any]) -> GroupView:
        """Make a scaling group, or give one another policy; for admins.

        Raises:
            InvalidSpec: with every problem found.
        """

    def cluster(self) -> ClusterView:
        """The cluster as a whole."""

    def health(self) -> HealthView:
        """Whether the controller answers; needs no right token."""

    def events(self) -> Iterator[EventView]:
        """What changes, as it happens, for ever; a ``reset`` comes first and after each gap."""
