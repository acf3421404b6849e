"""Kinds of records, each declared once; from the declaration follow its listing, and submit, show,
cancel, why, history and events."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

import msgspec

from muster.client.calls import PAGE, Calls, body_of
from muster.client.encoding import Ref, Value, json_of, quoted, quoted_path, ref_of
from muster.client.events import read_events
from muster.client.exchange import Exchange, Stream, exchange, streaming
from muster.core.errors import NotFound, nothing_named
from muster.core.ids import lookup_order
from muster.core.views.base import RecordView
from muster.core.views.events import EventView
from muster.core.views.work import CancelView, HistoryPage

if TYPE_CHECKING:
    from inspect import Signature

    from muster.client.client import AsyncClient, Client
    from muster.core.specs.amounts import Spec
    from muster.core.verbs import Verb
    from muster.core.views.placement import WhyView

C = TypeVar("C", bound="Client | AsyncClient")
P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V", bound=RecordView)
V_co = TypeVar("V_co", bound=RecordView, covariant=True)
D = TypeVar("D", bound=RecordView)


class Paged(Protocol[V_co]):
    """One page of a listing."""

    @property
    def items(self) -> Sequence[V_co]: ...
    @property
    def next(self) -> str | None: ...


class ListingQuery(msgspec.Struct, frozen=True):
    """The records that a listing is to have: at most ``limit``, of those that the filters leave."""

    filters: Mapping[str, Value]
    limit: int = PAGE


def newest(
    state: str = "live",
    *,
    name: str | None = None,
    owner: str | None = None,
    group: str | None = None,
    limit: int = 100,
) -> ListingQuery:
    """Records of this kind, newest first. A filter by something that they do not have is refused.

    Args:
        state: ``live``, ``ended``, ``all``, or one state.
        name: only those of this name, or with ``train*`` of names that begin with ``train``.
        owner: only this user's, or this ``domain/project/user``'s; for admins.
        group: only those of this scaling group.
        limit: how many at most.
    """
    return ListingQuery({"state": state, "name": name, "owner": owner, "group": group}, limit)


class RecordViews(msgspec.Struct, Generic[V, D], frozen=True):
    """The views of a kind of records.

    Args:
        view: of one in listings, and as the answer to a submission.
        detail: of one alone.
        page: of a listing.
    """

    view: type[V]
    detail: type[D]
    page: type[Paged[V]]


class ClientResource(msgspec.Struct, Generic[P, V, D], frozen=True, kw_only=True):
    """The declaration of a kind of records. As an attribute of a client it is their ``Records``.

    Args:
        name: as sentences call it: ``job``.
        prefix: of its ids, three letters: ``job``.
        path: of its collection.
        views: makes them known; not before they are needed, as most commands need few.
        listing: the parameters of its listing, documented.
        is_handed_in, is_cancelled: whether people can submit, and cancel one.
        complete: adds to the detail of one what other requests tell.
    """

    name: str
    prefix: str
    path: str
    views: Callable[[], RecordViews[V, D]]
    listing: Callable[P, ListingQuery]
    is_handed_in: bool = False
    is_cancelled: bool = False
    complete: Callable[[Calls, D], Exchange[D]] | None = None

    def of(self, ref: Ref, endpoint: str = "") -> str:
        """The path of one of them, or of an endpoint of it."""
        return f"{self.path}/{quoted(ref)}" + (f"/{endpoint}" if endpoint else "")

    def verb(self, verb: Verb[V]) -> exchange[[Ref], V]:
        """The method of a client that asks for a verb."""

        def steps(client: ResourceCalls, ref: Ref) -> Exchange[V]:
            return client._change(self, ref, verb.word)

        steps.__name__ = steps.__qualname__ = verb.name
        steps.__doc__ = (
            f"{verb.does}\n\nRaises:\n    NotFound, Conflict: there is no such {self.name}, or its "
            "state does not allow that."
        )
        return exchange(steps)

    @overload
    def __get__(self, client: Client, owner: type | None = None) -> Records[Client, P, V, D]: ...
    @overload
    def __get__(
        self, client: AsyncClient, owner: type | None = None
    ) -> Records[AsyncClient, P, V, D]: ...
    @overload
    def __get__(self, client: None, owner: type | None = None) -> ClientResource[P, V, D]: ...

    def __get__(self, client: Any, owner: type | None = None) -> Any:
        return self if client is None else Records(client, self)


class ResourceCalls(Calls):
    """Methods that take a REF of any kind.

    The kinds are those attributes of the class that are resources. A name is looked for in the
    order of ``IdKind``, and the error says of which kinds there is none.
    """

    def _resources(self) -> list[ClientResource[Any, Any, Any]]:
        declared = (each for kind in reversed(type(self).__mro__) for each in vars(kind).values())
        found = [each for each in declared if isinstance(each, ClientResource)]
        return sorted(found, key=lambda each: lookup_order(each.prefix))

    def _submitted(self, spec: Any, fields: Mapping[str, Any]) -> Exchange[Any]:
        """The steps of ``submit``. The kind of the spec is the name of a resource; of an unknown
        kind the server says which it expects."""
        kind, body = body_of(spec, fields)
        handed_in = [each for each in self._resources() if each.is_handed_in]
        to = next((each for each in handed_in if each.name == kind), handed_in[0])
        return self._hand_in(to, body)

    def _hand_in(self, to: ClientResource[..., V, Any], body: bytes) -> Exchange[V]:
        key = {"Idempotency-Key": uuid.uuid4().hex}
        return self._read(to.views().view, self._send("POST", to.path, body=body, headers=key))

    def _of_any(
        self,
        ref: Ref,
        among: Iterable[ClientResource[Any, Any, Any]],
        ask: Callable[[ClientResource[Any, Any, Any]], Generator[Any, Any, T]],
    ) -> Generator[Any, Any, T]:
        """Ask about the resource whose ids begin as ``ref`` does, then about the others, until one
        is found.

        Raises:
            NotFound: none is.
        """
        ref, kinds = ref_of(ref), [*among]
        ids = ref.lower()
        for each in sorted(kinds, key=lambda kind: not ids.startswith(f"{kind.prefix}-")):
            with suppress(NotFound):
                return (yield from ask(each))
        raise nothing_named(ref, *(each.name for each in kinds))

    def _list(self, of: ClientResource[..., V, Any], asked: ListingQuery) -> Exchange[list[V]]:
        found: list[V] = []
        cursor: str | None = None
        while (left := asked.limit - len(found)) > 0:
            limit = min(left, PAGE)
            page = yield from self._get(
                of.views().page, of.path, **asked.filters, limit=limit, cursor=cursor
            )
            found += page.items
            cursor = page.next
            if cursor is None:
                break
        return found

    def _show(self, of: ClientResource[..., Any, D], ref: Ref) -> Exchange[D]:
        found = yield from self._get(of.views().detail, of.of(ref))
        return found if of.complete is None else (yield from of.complete(self, found))

    def _cancel(
        self, of: ClientResource[Any, Any, Any], ref: Ref, *, force: bool
    ) -> Exchange[CancelView]:
        params = {"force": True} if force else None
        return self._read(CancelView, self._send("POST", of.of(ref, "cancel"), params=params))

    def _change(
        self, of: ClientResource[Any, V, Any], ref: Ref, word: str, **fields: Any
    ) -> Exchange[V]:
        """Ask for a verb whose request has these fields; the answer is the record afterwards."""
        body = json_of(fields) if fields else None
        return self._read(of.views().view, self._send("POST", of.of(ref, word), body=body))

    def _why(self, of: ClientResource[Any, Any, Any], ref: Ref) -> Exchange[WhyView]:
        from muster.core.views.placement import WhyView

        return self._get(WhyView, of.of(ref, "why"))

    @exchange
    def show(self, ref: Ref) -> Exchange[RecordView]:
        """The record of any kind that ``ref`` names, as its own kind shows it: a job as ``job``
        does.

        Raises:
            NotFound: there is no such record of yours.
            Ambiguous: ``ref`` means several; the message names them.
        """
        return self._of_any(ref, self._resources(), lambda resource: self._show(resource, ref))

    @exchange
    def cancel(self, ref: Ref, *, force: bool = False) -> Exchange[CancelView]:
        """Cancel work, or a record of another kind that can be cancelled; one that has ended
        already is left as it is.

        Args:
            force: kill processes at once, without a grace; for jobs and sessions.
        """
        among = (each for each in self._resources() if each.is_cancelled)
        return self._of_any(ref, among, lambda resource: self._cancel(resource, ref, force=force))

    @exchange
    def why(self, ref: Ref) -> Exchange[WhyView]:
        """Why a record of any kind, such as a job or an agent, is in its state."""
        return self._of_any(ref, self._resources(), lambda resource: self._why(resource, ref))

    @exchange
    def history(self, ref: Ref, *, limit: int = 200) -> Exchange[HistoryPage]:
        """The history of a record of any kind, a job's with its tasks and sessions, or of one task
        (``job/index``): the newest ``limit`` entries, at most 1,000."""
        return self._history(ref, limit)

    def _history(self, ref: Ref, limit: int) -> Exchange[HistoryPage]:
        return self._get(HistoryPage, f"/v1/history/{quoted_path(ref)}", limit=min(limit, PAGE))


class Records(Generic[C, P, V, D]):
    """The records of one kind in a client's cluster. Calling it lists them: ``client.jobs()``."""

    def __init__(self, client: C, resource: ClientResource[P, V, D]) -> None:
        self._client = client
        self._resource = resource
        self._perform: Any = client._perform
        self._iterate: Any = client._iterate
        self.__doc__ = resource.listing.__doc__

    def __repr__(self) -> str:
        return f"<{self._resource.name}s of {self._client.url}; call this to list them>"

    @property
    def __signature__(self) -> Signature:
        """The parameters of the listing, as people are shown them."""
        import inspect

        listed = f"list[{self._resource.views().view.__name__}]"
        return inspect.signature(self._resource.listing).replace(return_annotation=listed)

    @exchange
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Exchange[list[V]]:
        return self._client._list(self._resource, self._resource.listing(*args, **kwargs))

    @exchange
    def show(self, ref: Ref) -> Exchange[D]:
        """One of them.

        Raises:
            NotFound: there is no such record of yours.
            Ambiguous: ``ref`` means several; the message names them.
        """
        return self._client._show(self._resource, ref)

    @exchange
    def submit(self, spec: Spec | Mapping[str, Any] | None = None, /, **fields: Any) -> Exchange[V]:
        """Hand one in: a spec, or the keys of one (``Client.submit``)."""
        _, body = body_of(spec, fields)
        return self._client._hand_in(self._resource, body)

    @exchange
    def cancel(self, ref: Ref, *, force: bool = False) -> Exchange[CancelView]:
        """Cancel one of them; one that has ended already is left as it is. With ``force`` the
        processes of a job or session are killed at once."""
        return self._client._cancel(self._resource, ref, force=force)

    @exchange
    def why(self, ref: Ref) -> Exchange[WhyView]:
        """Why one of them is in its state."""
        return self._client._why(self._resource, ref)

    @exchange
    def history(self, ref: Ref, *, limit: int = 200) -> Exchange[HistoryPage]:
        """The history of one of them: the newest ``limit`` entries, at most 1,000."""
        # A name may be another kind's, too.
        found = yield from self._client._get(self._resource.views().detail, self._resource.of(ref))
        return (yield from self._client._history(found.id, limit))

    @streaming(EventView)
    def events(self) -> Stream:
        """Changes of these records, as they happen, for ever; a ``reset`` comes first and after
        each gap."""
        return read_events(self._client._open, self._resource.name)
