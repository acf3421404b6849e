"""Endpoints of verbs, which ``core.verbs`` declares."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from starlette.responses import Response

from muster.api.context import Call, Caller
from muster.api.resource import Resource
from muster.core.verbs import Verb
from muster.core.views.base import RecordView

V = TypeVar("V", bound=RecordView)
A = TypeVar("A")


def add_verb(
    resource: Resource[Any, V],
    verb: Verb[V],
    change: Callable[[Caller, str, A], Awaitable[Response]],
    act: A,
) -> None:
    """Add the endpoint of a verb to those of a resource.

    Args:
        change: carries out an act on the record that a reference names; the answer is the record
            afterwards.
        act: the request of control.
    """

    async def endpoint(call: Call, ref: str) -> Response:
        return await change(call, ref, act)

    resource.router.add_api_route(
        f"/{{ref}}/{verb.word}",
        endpoint,
        methods=["POST"],
        name=verb.name,
        description=verb.does,
        response_model=resource.view,
    )
