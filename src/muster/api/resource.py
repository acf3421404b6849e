"""Resources: an entity as people deal with it over HTTP. One declaration makes the endpoints that
all of them have: submit, list, show, cancel, reprioritise and why."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any, Generic, Protocol, TypeVar, cast

from fastapi import APIRouter, Depends, Header, Query, Request
from msgspec.structs import replace
from sqlalchemy import Connection
from starlette.responses import Response

from muster.api.answers import answer, json_answer
from muster.api.bodies import read_spec
from muster.api.context import Call, Caller
from muster.api.dependencies import knowing_ended, known_group
from muster.api.listing import (
    CURRENT,
    Cursor,
    Group,
    Limit,
    Name,
    OwnerOf,
    State,
    finds_nothing,
    states_of,
)
from muster.api.openapi import json_body, spec_body
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.session.admission import Ended
from muster.core import sentences
from muster.core.errors import Conflict, NotFound
from muster.core.owner import Owner, Principal
from muster.core.specs import WorkSpec
from muster.core.specs.amounts import Spec
from muster.core.specs.work import PrioritySpec
from muster.core.views.base import RecordView, View
from muster.core.views.placement import PlanView, WhyView
from muster.core.views.work import CancelView, PriorityView
from muster.store.entity import Entity
from muster.store.live import Live
from muster.store.queries.listing import Listing


class Handed(Protocol):
    """A record that people hand in, cancel and ask about."""

    @property
    def id(self) -> str: ...
    @property
    def status(self) -> str: ...


R = TypeVar("R", bound=Handed)
V = TypeVar("V", bound=RecordView)
S = TypeVar("S", bound=WorkSpec)

Force = Annotated[bool, Query(description="kill its processes at once: no grace")]
Plan = Callable[[Live, Parts, Principal, S, float, Ended], PlanView]
Cancel = Callable[[Work, Parts, Principal, str], R]
Reprioritise = Callable[[Work, Parts, Principal, str, int], int]
Explain = Callable[[Live, Parts, str, float, Principal], WhyView]
ExplainEnded = Callable[[Connection, Principal, V, float], WhyView]


def no_filters() -> Mapping[str, Any]:
    """The filters of a listing that has none of its own."""
    return {}


def explain_end(
    connection: Connection, principal: Principal, found: RecordView, now: float
) -> WhyView:
    """The answer of ``why`` about a record of whose end no more is to be told than its reason."""
    return WhyView.of_ended(found, sentences.ended_as(found.status))


@dataclass(frozen=True)
class Submission(Generic[R, S]):
    """How records are handed in.

    Args:
        spec: what people write.
        request: takes a spec in, with the ended work on which it depends.
        plan: foretells what would become of it, where that can be told.
    """

    spec: type[S]
    request: Callable[[Work, Parts, Principal, S, Ended], R]
    plan: Plan[S] | None = None


@dataclass(frozen=True, kw_only=True)
class Resource(Generic[R, V]):
    """The declaration of a resource. An endpoint is made for each part that is not None.

    Args:
        entity: its kind; the records that have not ended are in the mirror.
        path: of its collection: ``/v1/jobs``.
        view, detail, page: of one record, of one with its parts (the view unless given), and of a
            listing.
        as_seen: adds what is known in memory to views of SQL, and takes from them what the caller
            must not see; called on the event loop.
        left: the numbers of kernels that hold room still, by the ids of ended records; ``list_of``
            finds them in the listing, and ``show`` takes them as ``left``.
        left_of: adds to the answer of ``why`` about such a record what is left of it.
        view_of: the view of a record of the mirror: the answer to a submission, and all that is
            shown of a live record where ``show`` is None.
        read, show: queries of a view and of a detail by a reference; without ``show`` the view is
            all there is to show.
        list_of: the query of a page; ``filters`` are its keyword arguments, a dependency of FastAPI
            that reads them from the query of the URL.
        name_of: the name of a record in the mirror; its id unless given.
        named: the words for a record in a sentence about what was done to it:
            ``job train (job-01…)``.
        submission: how records are handed in.
        reprioritise: the request for another priority, whose answer is the former one.
        cancel: its request; ``graces_s`` are the seconds that running processes of a record have to
            end.
        kill: the request to cancel with force: to kill these processes at once.
        settled: whether a live record of which people wait is as they wait for it, or will not be,
            by its view of the mirror; others are waited for until they have ended.
        explain, explain_ended: the answer of ``why`` about a record of the mirror, and the query of
            the answer about one that has ended.
    """

    entity: Entity[Any]
    path: str
    view: type[V]
    detail: type[View] | None = None
    page: type[View]
    view_of: Callable[[R, Live, Parts], V] | None = None
    as_seen: Callable[[Sequence[V], Caller], Sequence[V]] | None = None
    left: Callable[[Live], Mapping[str, int]] | None = None
    left_of: Callable[[Live, WhyView, float], WhyView] | None = None
    read: Callable[[Connection, Principal, str], V]
    show: Callable[..., View] | None = None
    list_of: Callable[..., View] | None = None
    filters: Callable[..., Mapping[str, Any] | Awaitable[Mapping[str, Any]]] = no_filters
    name_of: Callable[[V], str] = attrgetter("id")
    named: Callable[[V], str] = attrgetter("id")
    submission: Submission[R, Any] | None = None
    cancel: Cancel[R] | None = None
    kill: Cancel[R] | None = None
    graces_s: Callable[[R], Collection[float]] = lambda record: ()
    reprioritise: Reprioritise | None = None
    settled: Callable[[V], bool] | None = None
    explain: Explain | None = None
    explain_ended: ExplainEnded[V] = explain_end

    @cached_property
    def router(self) -> APIRouter:
        """Its endpoints; those that only this resource has are added to them."""
        name, collection = self.entity.name, self.path.rpartition("/")[2]
        router = APIRouter(prefix=self.path, tags=[collection])
        if self.submission is not None:
            router.add_api_route(
                "",
                self._submitting(self.submission),
                methods=["POST"],
                status_code=201,
                name=f"submit_{name}",
                description=f"Hand in a {name}. With the key of an earlier submission the answer "
                f"is that {name}, with status 200.",
                response_model=self.view,
                openapi_extra=spec_body(self.submission.spec),
            )
        if self.list_of is not None:
            router.add_api_route(
                "",
                self._listing(self.list_of),
                name=f"get_{collection}",
                description=f"The {collection} that the caller may see, newest first.",
                response_model=self.page,
            )
        router.add_api_route(
            "/{ref}",
            self._showing(),
            name=f"get_{name}",
            description=f"One {name}: by id, by a unique prefix of it, or by its name if it has "
            "one (a live one first).",
            response_model=self.detail or self.view,
        )
        self._add_actions(router)
        return router

    def _add_actions(self, router: APIRouter) -> None:
        """Add the endpoints that change one record, or explain it."""
        name = self.entity.name
        if self.cancel is not None:
            router.add_api_route(
                "/{ref}/cancel",
                self._cancelling(self.cancel),
                methods=["POST"],
                name=f"cancel_{name}",
                description=f"Cancel a {name}; one that has ended already stays as it is. With "
                "`force` processes are killed at once, where the kind knows that.",
                response_model=CancelView,
            )
        if self.reprioritise is not None:
            router.add_api_route(
                "/{ref}/reprioritise",
                self._reprioritising(self.reprioritise),
                methods=["POST"],
                name=f"reprioritise_{name}",
                description=f"Give a {name} that has not ended another priority, which counts from "
                "now on: in the queue, and for what may displace it.",
                response_model=PriorityView,
                openapi_extra=json_body(PrioritySpec),
            )
        if self.explain is not None:
            router.add_api_route(
                "/{ref}/why",
                self._explaining(),
                name=f"why_{name}",
                description=f"Why a {name} is in its state: every reason that holds now.",
                response_model=WhyView,
            )

    async def hand_in(
        self,
        call: Caller,
        principal: Principal,
        owner: Owner,
        spec: WorkSpec,
        key: str | None,
        submit: Callable[[Work, Parts, Ended], R],
    ) -> Response:
        """The answer to a submission: a new record, or one that was handed in with this key.

        Args:
            principal: who hands it in.
            owner: of the work that the spec depends on.
            key: the caller's, so that a repetition hands in nothing; None where nothing is
                repeated.

        Raises:
            MusterError: the submission is refused.
        """

        async def once(ended: Ended) -> R | str:
            def action(work: Work, parts: Parts) -> R:
                return submit(work, parts, ended)

            return await call.api.submissions.once(principal.owner, key, call.still_allowed(action))

        record = await knowing_ended(call, owner, spec, once)
        if isinstance(record, str):
            return json_answer(await call.json(self.read, call.principal, record))
        if call.api.plane.is_broken:
            return json_answer(await call.json(self.read, call.principal, record.id), 201)
        return answer(self._live_view(record, call), 201)

    def _live_view(self, record: R, call: Caller) -> V:
        assert self.view_of is not None, "declared with submit, or without show"
        return self.view_of(record, call.api.plane.live, call.api.plane.parts)

    def _submitting(self, submission: Submission[R, S]) -> Callable[..., Any]:
        kind = cast(type[Spec], submission.spec)

        async def endpoint(
            request: Request,
            call: Call,
            idempotency_key: Annotated[str | None, Header()] = None,
        ) -> Response:
            call.must_change()
            read = await read_spec(request, kind)
            call.api.plane.check(read)
            spec = cast(S, read)
            principal = call.principal.within(spec.project)

            def action(work: Work, parts: Parts, ended: Ended) -> R:
                known_group(work.live, spec.group)
                return submission.request(work, parts, principal, spec, ended)

            return await self.hand_in(
                call, principal, principal.owner, spec, idempotency_key, action
            )

        return endpoint

    def _listing(self, list_of: Callable[..., View]) -> Callable[..., Any]:
        async def endpoint(
            call: Call,
            filters: Annotated[Mapping[str, Any], Depends(self.filters)],
            state: State = "live",
            name: Name = None,
            owner: OwnerOf = None,
            group: Group = None,
            limit: Limit = 100,
            cursor: Cursor = None,
        ) -> Response:
            states = states_of(self.entity.states, state)
            with_left = state.lower() == CURRENT
            left = self._left(call)
            listing = Listing(states, name, owner, group, limit, cursor, left, with_left)
            plane = call.api.plane
            is_whole = all(each in (None, False) for each in filters.values())
            if is_whole and not plane.is_broken and finds_nothing(self.entity, plane.live, listing):
                return answer(self.page(items=()))
            if self.as_seen is not None:
                page: Any = await call.read(list_of, call.principal, listing, **filters)
                return answer(replace(page, items=tuple(self.as_seen(page.items, call))))
            return json_answer(await call.json(list_of, call.principal, listing, **filters))

        return endpoint

    def _showing(self) -> Callable[..., Any]:
        async def endpoint(call: Call, ref: str) -> Response:
            if self.show is not None:
                left = {} if self.left is None else {"left": self._left(call)}
                return json_answer(await call.json(self.show, call.principal, ref, **left))
            found, live = await self._look_up(call, ref)
            if self.as_seen is not None:
                return answer(self.as_seen([found], call)[0])
            if live is None or self.view_of is None:
                return answer(found)
            return answer(self._live_view(live, call))

        return endpoint

    def _cancelling(self, cancel: Cancel[R]) -> Callable[..., Any]:
        async def endpoint(call: Call, ref: str, force: Force = False) -> Response:
            call.must_change()
            principal = call.principal
            found = await call.read(self.read, principal, ref)
            request = self.kill if force else cancel
            if request is None:
                raise Conflict(f"{self.named(found)} is not cancelled with force: leave that out")

            def action(work: Work, parts: Parts) -> tuple[R, Collection[float], bool]:
                live = work.live.of(self.entity.record).get(self.name_of(found))
                ended = live is None or live.status in self.entity.states.terminal
                graces_s = () if live is None or force else self.graces_s(live)
                return request(work, parts, principal, found.id), graces_s, force and ended

            try:
                cancelled, graces_s, had_ended = await call.change(action)
            except NotFound:
                found = await call.read(self.read, principal, found.id)
                said = f"{self.named(found)} had ended already: it is {found.status.lower()}"
                return answer(_cancel_view(found, False, said))
            if had_ended:
                ended = f"{self.named(found)} had ended already: it is {cancelled.status.lower()}"
                said = f"{ended}; what is left of it is killed at once"
                return answer(_cancel_view(cancelled, False, said))
            end = "; its processes are killed at once" if force else _grace_left(graces_s)
            said = f"{self.named(found)} is cancelled{end}"
            return answer(_cancel_view(cancelled, True, said))

        return endpoint

    def _reprioritising(self, reprioritise: Reprioritise) -> Callable[..., Any]:
        async def endpoint(request: Request, call: Call, ref: str) -> Response:
            call.must_change()
            principal = call.principal
            asked = (await read_spec(request, PrioritySpec)).priority
            found = await call.read(self.read, principal, ref)

            def action(work: Work, parts: Parts) -> tuple[int, str]:
                before = reprioritise(work, parts, principal, found.id, asked)
                return before, work.live.of(self.entity.record)[found.id].status

            try:
                before, status = await call.change(action)
            except NotFound:
                found = await call.read(self.read, principal, found.id)
                ended = f"{self.named(found)} has ended: it is {found.status.lower()}"
                raise Conflict(f"{ended}, and its priority no longer counts") from None
            changed = before != asked
            said = f"now, before it was {before}" if changed else "already"
            message = f"{self.named(found)} has priority {asked} {said}"
            view = PriorityView(
                id=found.id, status=status, priority=asked, changed=changed, message=message
            )
            return answer(view)

        return endpoint

    def _explaining(self) -> Callable[..., Any]:
        async def endpoint(call: Call, ref: str) -> Response:
            return await self.why(call, ref)

        return endpoint

    async def why(self, call: Caller, ref: str) -> Response:
        """The answer of ``why`` about one of the records.

        Raises:
            NotFound, Ambiguous: see ``refs.resolve``.
        """
        assert self.explain is not None, "declared with the endpoint"
        found, live = await self._look_up(call, ref)
        now = call.api.clock.now()
        if live is None and found.status in self.entity.states.live:
            return answer(
                WhyView(subject=found.id, status=found.status, verdict=sentences.READ_AGAIN)
            )
        plane, name = call.api.plane, self.name_of(found)
        if live is None and self.left_of is not None and found.id in self._left(call):
            ended = await call.read(self.explain_ended, call.principal, found, now)
            return answer(self.left_of(plane.live, ended, now))
        if live is None:
            return json_answer(await call.json(self.explain_ended, call.principal, found, now))
        return answer(self.explain(plane.live, plane.parts, name, now, call.principal))

    def _left(self, call: Caller) -> Mapping[str, int]:
        """See ``left``; none while a commit that failed is still to be read again."""
        plane = call.api.plane
        return {} if self.left is None or plane.is_broken else self.left(plane.live)

    async def _look_up(self, call: Caller, ref: str) -> tuple[V, R | None]:
        """A record as SQL has it, and as the mirror has it unless it has ended, or a commit failed
        and the mirror is still to be read again.

        Raises:
            NotFound, Ambiguous: see ``refs.resolve``.
        """
        found = await call.read(self.read, call.principal, ref)
        plane = call.api.plane
        records: Mapping[str, R] = plane.live.of(self.entity.record)
        live = None if plane.is_broken else records.get(self.name_of(found))
        if live is None and found.status in self.entity.states.live:
            # It has ended since it was read.
            found = await call.read(self.read, call.principal, found.id)
        return found, live


def _cancel_view(of: Handed | RecordView, changed: bool, message: str) -> CancelView:
    return CancelView(id=of.id, status=of.status, changed=changed, message=message)


def _grace_left(graces_s: Collection[float]) -> str:
    """The end of the sentence that tells of a cancellation: the time for which running processes,
    which have these graces, may go on."""
    longest_s = max(graces_s, default=0.0)
    return f"; its processes have up to {longest_s:g} s to end" if longest_s else ""
