"""``Client``: what the command line, scripts and notebooks use to talk to a cluster."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload
from urllib.parse import quote

from muster.client.connection import find_connection
from muster.client.errors import Unreachable
from muster.client.workdir import with_absolute_workdirs
from muster.core.errors import NotFound

if TYPE_CHECKING:
    from types import TracebackType

    from muster.client.transport import Transport
    from muster.core.specs import JobSpec, QuotaSpec, ScalingGroup, SessionSpec
    from muster.core.states import AgentBar
    from muster.core.views import (
        AgentView,
        CancelView,
        ClusterView,
        EventView,
        FailurePage,
        GroupView,
        HealthView,
        HistoryPage,
        JobDetail,
        JobView,
        PlanView,
        QuotaView,
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
    """A connection to a cluster; several threads may use it at once.

    A job is named by its id, any unique prefix of it, or its name. Requests that can be repeated
    without harm are, for a while, when the controller does not answer; ``wait`` and a following
    ``logs`` survive its restart.

    Args:
        url: of the controller; found as ``connection`` says when left out.
        token: an API token; likewise.
        timeout_s: longest wait for one answer.
        on_contact: called with False when the controller has not answered for a second, and with
            True when it does again, in the thread that waits. Whoever listens is patient: every
            request goes on for ten minutes without an answer, as ``wait`` does.

    Raises (every method, beside what it names itself):
        NoConnection: no URL or no token is known.
        Unreachable: nothing answers.
        ControllerFailed: it has a defect.
        Unauthenticated: the token is wrong.
        Forbidden: the token's role does not allow it.
        Busy, Unavailable: the controller cannot do it now.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        on_contact: Callable[[bool], None] | None = None,
    ) -> None:
        self._connection = find_connection(url, token)
        self._timeout_s = timeout_s
        self._on_contact = on_contact
        self._opened: Transport | None = None
        self._opening = threading.Lock()

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
                Among keys a relative ``workdir`` starts from the current directory; without one
                each kernel runs in an empty directory of its own.

        Raises:
            InvalidSpec: with every problem found; nothing was written.
            Conflict: the name is taken.
        """
        from muster.core.views import JobView, SessionView

        if (spec is None) == (not fields):
            raise TypeError("submit takes a spec, or the keys of one")
        kind, body = _body(fields if spec is None else spec)
        key = {"Idempotency-Key": uuid.uuid4().hex}
        if kind == "session":
            answer = self._http.send("POST", "/v1/sessions", body=body, headers=key)
            return self._parse(SessionView, answer.content)
        answer = self._http.send("POST", "/v1/jobs", body=body, headers=key)
        return self._parse(JobView, answer.content)

    def plan(
        self, spec: JobSpec | SessionSpec | Mapping[str, Any] | None = None, **fields: Any
    ) -> PlanView:
        """What would become of work if it were handed in now; nothing is, and nothing changes.

        Args:
            spec, fields: as ``submit``.

        Raises:
            InvalidSpec, Conflict: as ``submit``.
        """
        from muster.core.views import PlanView

        if (spec is None) == (not fields):
            raise TypeError("plan takes a spec, or the keys of one")
        kind, body = _body(fields if spec is None else spec)
        body = json.dumps(json.loads(body) | {"kind": kind}).encode()
        return self._parse(PlanView, self._http.send("POST", "/v1/plan", body=body).content)

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
        from muster.core.views import JobPage

        jobs: list[JobView] = []
        cursor: str | None = None
        while len(jobs) < limit:
            page = self._get(
                JobPage,
                "/v1/jobs",
                state=state,
                name=name,
                owner=owner,
                limit=min(limit - len(jobs), PAGE),
                cursor=cursor,
            )
            jobs += page.items
            cursor = page.next
            if cursor is None:
                break
        return jobs

    def job(self, ref: str) -> JobDetail:
        """One job, with its spec.

        Raises:
            NotFound: there is none of yours.
            Ambiguous: ``ref`` means several; the message names them.
        """
        from muster.core.views import JobDetail

        return self._get(JobDetail, f"/v1/jobs/{_quoted(ref)}")

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
        from muster.client.transport import PATIENCE_S, WAITING_S

        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        told: str | None = None
        first = True
        while True:
            left_s = LONG_POLL_S if until_s is None else max(until_s - time.monotonic(), 0.0)
            # The first answer comes at once: from then on it is this job, whoever gets its name.
            poll_s = 0.0 if first and on_change else min(left_s, LONG_POLL_S)
            patience_s = WAITING_S if timeout_s is None else max(left_s, PATIENCE_S)
            job = self._wait_once(ref, poll_s, told, min(patience_s, WAITING_S))
            if on_change is not None and job.version != told:
                told = job.version
                on_change(job)
            if job.ended or (left_s <= 0 and not first):
                return job
            ref, first = job.id, False

    def _wait_once(
        self, ref: str, timeout_s: float, since: str | None, patience_s: float
    ) -> JobView:
        from muster.core.views import JobView

        answer = self._http.send(
            "GET",
            f"/v1/jobs/{_quoted(ref)}/wait",
            params={"timeout_s": timeout_s, "since": since},
            patience_s=patience_s,
            extra_s=timeout_s,
        )
        return self._parse(JobView, answer.content)

    def retry(self, ref: str, *, failed: bool = False) -> JobView:
        """Run the tasks again that did not succeed of a job that has ended, as a new job in which
        each has the index that it had; with ``failed`` only those that failed by themselves, not
        those that were stopped with the job.

        Raises:
            NotFound, Ambiguous: as ``job``.
            Conflict: it has not ended, has no such tasks, or is being retried already.
        """
        from muster.core.views import JobView

        path, key = f"/v1/jobs/{_quoted(ref)}/retry", {"Idempotency-Key": uuid.uuid4().hex}
        body = json.dumps({"failed": failed}).encode()
        return self._parse(JobView, self._http.send("POST", path, body=body, headers=key).content)

    def tasks(
        self,
        ref: str,
        state: str | None = None,
        *,
        failed: bool = False,
        offset: int = 0,
        limit: int = 100,
    ) -> TaskPage:
        """A job's tasks by index with their latest attempts, from the ``offset``-th on; of one
        ``state`` if it is given, or those that ``failed`` by themselves.

        At most ``PAGE`` (1,000) at a time; ``total`` says how many there are.
        """
        from muster.core.views import TaskPage

        path = f"/v1/jobs/{_quoted(ref)}/tasks"
        return self._get(
            TaskPage, path, state=state, failed=failed, offset=offset, limit=min(limit, PAGE)
        )

    def failures(self, ref: str) -> FailurePage:
        """A job's failed tasks, those together that failed alike."""
        from muster.core.views import FailurePage

        return self._get(FailurePage, f"/v1/jobs/{_quoted(ref)}/failures")

    def task(self, ref: str, index: int) -> TaskDetail:
        """One task, with its attempts."""
        from muster.core.views import TaskDetail

        return self._get(TaskDetail, f"/v1/jobs/{_quoted(ref)}/tasks/{index}")

    def sessions(
        self, state: str = "live", *, of_jobs: bool = False, limit: int = 100
    ) -> list[SessionView]:
        """Sessions, newest first; those that belong to jobs only with ``of_jobs``."""
        from muster.core.views import SessionPage

        sessions: list[SessionView] = []
        cursor: str | None = None
        while len(sessions) < limit:
            page = self._get(
                SessionPage,
                "/v1/sessions",
                state=state,
                of_jobs=of_jobs,
                limit=min(limit - len(sessions), PAGE),
                cursor=cursor,
            )
            sessions += page.items
            cursor = page.next
            if cursor is None:
                break
        return sessions

    def session(self, ref: str) -> SessionDetail:
        """One session, with its kernels."""
        from muster.core.views import SessionDetail

        return self._get(SessionDetail, f"/v1/sessions/{_quoted(ref)}")

    def cancel(self, ref: str) -> CancelView:
        """Cancel a job or a session; one that has ended already is left as it is."""
        from muster.core.views import CancelView

        return self._job_or_session(
            ref,
            lambda path: self._parse(CancelView, self._http.send("POST", path).content),
            "cancel",
        )

    def why(self, ref: str) -> WhyView:
        """Why a job or a session is where it is."""
        from muster.core.views import WhyView

        return self._job_or_session(ref, lambda path: self._get(WhyView, path), "why")

    def history(self, ref: str, *, limit: int = 200) -> HistoryPage:
        """What happened to a job with its tasks and sessions, to one task (``job/index``), to a
        session or to an agent: the newest ``limit`` entries, at most 1,000."""
        from muster.core.views import HistoryPage

        return self._get(HistoryPage, f"/v1/history/{quote(ref)}", limit=min(limit, PAGE))

    def logs(
        self,
        ref: str,
        *,
        task: int = 0,
        attempt: int | None = None,
        tail_bytes: int | None = None,
        follow: bool = False,
        retries: bool | None = None,
    ) -> Iterator[bytes]:
        """The output of a job's task, piece by piece.

        Args:
            attempt: from 1; the latest when left out.
            tail_bytes: only so much of its end.
            follow: go on until the task has ended; wait for it if it has not started.
            retries: with ``follow``, go on through the attempts after this one, those too that
                have come and gone already; by default when no ``attempt`` is given.

        Raises:
            NotFound, Ambiguous: as ``job``; NotFound also when there is no such task or attempt.
            Conflict: it has not started, and ``follow`` is not set.
            AgentUnreachable: the output is on a machine that does not answer. Where other attempts
                follow, it is raised after theirs.
        """
        from muster.client.output import read_output

        return read_output(
            self._http,
            f"/v1/jobs/{_quoted(ref)}/logs",
            {"task": task},
            attempt=attempt,
            tail_bytes=tail_bytes,
            follow=follow,
            retries=follow and (attempt is None if retries is None else retries),
        )

    def session_logs(
        self, ref: str, *, kernel: int = 0, tail_bytes: int | None = None, follow: bool = False
    ) -> Iterator[bytes]:
        """The output of a session's kernel; as ``logs``."""
        from muster.client.output import read_output

        return read_output(
            self._http,
            f"/v1/sessions/{_quoted(ref)}/logs",
            {"kernel": kernel},
            attempt=None,
            tail_bytes=tail_bytes,
            follow=follow,
            retries=False,
        )

    # -- the cluster ---------------------------------------------------------------------------

    def agents(self, group: str | None = None) -> list[AgentView]:
        """Machines, by name; of one group if it is given."""
        from muster.core.views import AgentPage

        return list(self._get(AgentPage, "/v1/agents", group=group).items)

    def remove_agent(self, ref: str) -> None:
        """Forget an agent (its name, id, or a prefix of it) that is gone for good; for admins.

        Raises:
            Conflict: it is alive, or may still run something.
        """
        self._http.send("DELETE", f"/v1/agents/{_quoted(ref)}", repeat=False)

    def groups(self) -> list[GroupView]:
        """Scaling groups, by name."""
        from muster.core.views import GroupPage

        return list(self._get(GroupPage, "/v1/groups").items)

    def put_group(self, spec: ScalingGroup | Mapping[str, Any]) -> GroupView:
        """Make a scaling group, or give one another policy; for admins.

        Raises:
            InvalidSpec: with every problem found.
        """
        from muster.core.views import GroupView

        name = str(spec.get("name", "")) if isinstance(spec, Mapping) else spec.name
        _, body = _body(spec)
        answer = self._http.send("PUT", f"/v1/groups/{_quoted(name)}", body=body)
        return self._parse(GroupView, answer.content)

    def bar_agent(self, ref: str, bar: AgentBar | str | None) -> AgentView:
        """Have an agent take nothing new (``cordoned``, or ``draining`` until it is empty), or,
        with None, have it take work again; what it runs goes on. For admins.

        Raises:
            NotFound: there is no such agent.
        """
        from muster.core.views import AgentView

        body = json.dumps({"bar": bar}).encode()
        answer = self._http.send("POST", f"/v1/agents/{_quoted(ref)}/bar", body=body)
        return self._parse(AgentView, answer.content)

    def quotas(self) -> list[QuotaView]:
        """All quotas for an admin, else those that bind the caller, with what is used of them."""
        from muster.core.views import QuotaPage

        return list(self._get(QuotaPage, "/v1/quotas").items)

    def put_quota(self, spec: QuotaSpec | Mapping[str, Any]) -> QuotaView:
        """Limit a domain, a project or a user, in place of the limits it has; for admins.

        Raises:
            InvalidSpec: with every problem found.
        """
        from muster.core.views import QuotaView

        fields = spec if isinstance(spec, Mapping) else {"level": spec.level, "name": spec.name}
        path = _quota_path(str(fields.get("level", "user")), str(fields.get("name", "")))
        _, body = _body(spec)
        return self._parse(QuotaView, self._http.send("PUT", path, body=body).content)

    def remove_quota(self, level: str, name: str) -> None:
        """Have a domain, a project or a user have no limits of its own; for admins.

        Raises:
            NotFound: it has none.
        """
        self._http.send("DELETE", _quota_path(level, name), repeat=False)

    def cluster(self) -> ClusterView:
        """The cluster as a whole."""
        from muster.core.views import ClusterView

        return self._get(ClusterView, "/v1/cluster")

    def health(self) -> HealthView:
        """Whether the controller answers; the token is not looked at."""
        from muster.core.views import HealthView

        return self._get(HealthView, "/health")

    def events(self) -> Iterator[EventView]:
        """What changes, as it happens, for ever; a ``reset`` comes first and after each gap."""
        from muster.client.events import read_events

        return read_events(self._http)

    # -- underneath ------------------------------------------------------------------------------

    @property
    def _http(self) -> Transport:
        with self._opening:
            if self._opened is None:
                from muster.client.transport import Transport

                self._opened = Transport(self._connection, self._timeout_s, self._on_contact)
            return self._opened

    def _get(self, view: type[V], path: str, **params: str | int | float | bool | None) -> V:
        return self._parse(view, self._http.send("GET", path, params=params).content)

    def _parse(self, view: type[V], content: bytes) -> V:
        import msgspec

        try:
            return msgspec.json.decode(content, type=view)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Unreachable(
                f"what answers at {self.url} is not a Muster controller, or of another version "
                f"than this client: its {view.__name__} cannot be read"
            ) from None

    def _job_or_session(self, ref: str, ask: Callable[[str], V], what: str) -> V:
        """Ask about a job of this name, else about a session."""
        session_path = f"/v1/sessions/{_quoted(ref)}/{what}"
        if ref.lower().startswith("ses-"):
            return ask(session_path)
        try:
            return ask(f"/v1/jobs/{_quoted(ref)}/{what}")
        except NotFound as no_job:
            try:
                return ask(session_path)
            except NotFound:
                raise no_job from None


def _quoted(ref: str) -> str:
    """One segment of a path; an empty one would make another path of it."""
    return quote(ref or "-", safe="")


def _quota_path(level: str, name: str) -> str:
    return f"/v1/quotas/{_quoted(level)}/{quote(name or '-')}"


def _body(spec: Any) -> tuple[str, bytes]:
    """A spec's kind and its JSON."""
    if isinstance(spec, Mapping):
        keys = with_absolute_workdirs(spec)
        return str(keys.get("kind", "job")), json.dumps(keys).encode()
    return spec.kind, spec.model_dump_json(exclude_defaults=True).encode()
