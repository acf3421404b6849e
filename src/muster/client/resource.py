"""The methods that all resources share: listing, show, cancel, why, history."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from muster.client.calls import PAGE, Calls, body_of
from muster.client.encoding import Value, quoted, quoted_path
from muster.client.exchange import Exchange, exchange
from muster.core.errors import NotFound, nothing_named
from muster.core.views.base import RecordView
from muster.core.views.work import CancelView, HistoryPage

if TYPE_CHECKING:
    from muster.core.views.placement import WhyView


class Paged(Protocol):
    """One page of a listing."""

    @property
    def items(self) -> Sequence[Any]: ...
    @property
    def next(self) -> str | None: ...


T = TypeVar("T")
Detail = TypeVar("Detail")
Page = TypeVar("Page", bound=Paged)


@dataclass(frozen=True)
class Resource(Generic[Detail, Page]):
    """An entity of the API.

    Args:
        name: as sentences call it: ``job``.
        prefix: of its ids, three letters: ``job``.
        path: of its collection.
        detail, page: the views of one, and of a page.
        submitted: the view that answers a submission; None where nothing is handed in.
        is_cancelled: whether people can cancel one.
    """

    name: str
    prefix: str
    path: str
    detail: type[Detail]
    page: type[Page]
    submitted: type[RecordView] | None = None
    is_cancelled: bool = True

    def of(self, ref: str, endpoint: str = "") -> str:
        """The path of one of them, or of an endpoint of it."""
        return f"{self.path}/{quoted(ref)}" + (f"/{endpoint}" if endpoint else "")


class ResourceCalls(Calls):
    """Methods that take a REF of any resource (an entity of the API, not an amount).

    A class that adds resources to the client names them in ``resources``. A name is looked for in
    their order, and the error says of which kinds there is none.
    """

    resources: ClassVar[Sequence[Resource[Any, Any]]] = ()

    def _all_resources(self) -> Iterator[Resource[Any, Any]]:
        for kind in type(self).__mro__:
            yield from vars(kind).get("resources", ())

    def _submitted(self, spec: Any, fields: Mapping[str, Any]) -> Exchange[Any]:
        """The steps of ``submit``. The kind of the spec is the name of a resource; of an unknown
        kind the server says which it expects."""
        if (spec is None) == (not fields):
            raise TypeError("submit takes a spec, or the keys of one")
        kind, body = body_of(fields if spec is None else spec)
        handed_in = [each for each in self._all_resources() if each.submitted is not None]
        to = next((each for each in handed_in if each.name == kind), handed_in[0])
        assert to.submitted is not None
        key = {"Idempotency-Key": uuid.uuid4().hex}
        return self._read(to.submitted, self._send("POST", to.path, body=body, headers=key))

    def _of_any(
        self,
        ref: str,
        among: Iterable[Resource[Any, Any]],
        ask: Callable[[Resource[Any, Any]], Generator[Any, Any, T]],
    ) -> Generator[Any, Any, T]:
        """Ask about the resource whose ids begin as ``ref`` does, then about the others, until one
        is found.

        Raises:
            NotFound: none is.
        """
        ids, kinds = ref.lower(), [*among]
        for each in sorted(kinds, key=lambda kind: not ids.startswith(f"{kind.prefix}-")):
            with suppress(NotFound):
                return (yield from ask(each))
        raise nothing_named(ref, *(each.name for each in kinds))

    def _show(self, resource: Resource[Detail, Any], ref: str) -> Exchange[Detail]:
        return self._get(resource.detail, resource.of(ref))

    def _list(
        self, resource: Resource[Any, Page], limit: int, filters: Mapping[str, Value]
    ) -> Exchange[list[Page]]:
        """The pages of a listing, from the first on, with at most ``limit`` items in all."""
        pages: list[Page] = []
        left, cursor = limit, None
        while left > 0:
            asked = {**filters, "limit": min(left, PAGE), "cursor": cursor}
            page = yield from self._get(resource.page, resource.path, **asked)
            pages.append(page)
            left, cursor = left - len(page.items), page.next
            if cursor is None:
                break
        return pages

    @exchange
    def cancel(self, ref: str) -> Exchange[CancelView]:
        """Cancel work, or a record of another kind that can be cancelled; one that has ended
        already is left as it is."""
        return self._of_any(
            ref,
            (each for each in self._all_resources() if each.is_cancelled),
            lambda resource: self._read(CancelView, self._send("POST", resource.of(ref, "cancel"))),
        )

    @exchange
    def why(self, ref: str) -> Exchange[WhyView]:
        """Why a record of any kind, such as a job or an agent, is in its state."""
        from muster.core.views.placement import WhyView

        return self._of_any(
            ref,
            self._all_resources(),
            lambda resource: self._get(WhyView, resource.of(ref, "why")),
        )

    @exchange
    def history(self, ref: str, *, limit: int = 200) -> Exchange[HistoryPage]:
        """The history of a record of any kind, a job's with its tasks and sessions, or of one task
        (``job/index``): the newest ``limit`` entries, at most 1,000."""
        return self._get(HistoryPage, f"/v1/history/{quoted_path(ref)}", limit=min(limit, PAGE))
