"""The methods that all resources share: listing, cancel, why, history."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from muster.client.calls import PAGE, Calls
from muster.client.encoding import Value, quoted, quoted_path
from muster.client.exchange import Exchange, exchange
from muster.core.errors import NotFound
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
    """An entity of the API: the ``prefix`` of its ids, the ``path`` of its collection, and the
    views of one and of a page."""

    prefix: str
    path: str
    detail: type[Detail]
    page: type[Page]

    def of(self, ref: str, endpoint: str = "") -> str:
        """The path of one of them, or of an endpoint of it."""
        return f"{self.path}/{quoted(ref)}" + (f"/{endpoint}" if endpoint else "")


class ResourceCalls(Calls):
    """Methods that take a REF of any resource (an entity of the API, not an amount).

    A class that adds resources to the client names them in ``resources``. A name is looked for in
    their order.
    """

    resources: ClassVar[Sequence[Resource[Any, Any]]] = ()

    def _all_resources(self) -> Iterator[Resource[Any, Any]]:
        for kind in type(self).__mro__:
            yield from vars(kind).get("resources", ())

    def _of_any(
        self, ref: str, ask: Callable[[Resource[Any, Any]], Generator[Any, Any, T]]
    ) -> Generator[Any, Any, T]:
        """Ask about the resource whose ids begin as ``ref`` does, then about the others, until one
        is found.

        Raises:
            NotFound: none is; the error is the first resource's.
        """
        ids = ref.lower()
        unknown: NotFound | None = None
        for each in sorted(self._all_resources(), key=lambda of: not ids.startswith(of.prefix)):
            try:
                return (yield from ask(each))
            except NotFound as error:
                unknown = unknown or error
        raise unknown or NotFound(f"there is no {ref!r}")

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
        """Cancel a job or a session; one that has ended already is left as it is."""
        return self._of_any(
            ref, lambda resource: self._put(CancelView, "POST", resource.of(ref, "cancel"))
        )

    @exchange
    def why(self, ref: str) -> Exchange[WhyView]:
        """Why a job or a session is in its state."""
        from muster.core.views.placement import WhyView

        return self._of_any(ref, lambda resource: self._get(WhyView, resource.of(ref, "why")))

    @exchange
    def history(self, ref: str, *, limit: int = 200) -> Exchange[HistoryPage]:
        """The history of a job with its tasks and sessions, of one task (``job/index``), of a
        session or of an agent: the newest ``limit`` entries, at most 1,000."""
        return self._get(HistoryPage, f"/v1/history/{quoted_path(ref)}", limit=min(limit, PAGE))
