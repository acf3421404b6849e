"""The innermost layer of the API: from a request to its endpoint, and from what that returns or
raises to an answer."""

from starlette.types import Receive, Scope, Send

from muster.api.answers import is_defect, nothing_there, refusal
from muster.api.arguments import Incoming
from muster.api.routes import NoSuchMethod, NoSuchPath, RouteTable


class Answering:
    """An ASGI application that answers each request by its endpoint."""

    def __init__(self, table: RouteTable) -> None:
        self._table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            endpoint, path = self._table.find(scope["method"], scope["path"])
            response = await endpoint.arguments.called(Incoming(scope, receive, path))
        except NoSuchPath:
            response = nothing_there(scope)
        except NoSuchMethod as error:
            response = nothing_there(scope, error.allowed)
        except Exception as error:
            response = refusal(scope, error)
            if is_defect(error):
                await response(scope, receive, send)
                raise  # so that the server logs it
            # Its frames hold what was read of the body, in a cycle that lasts until the next
            # collection: 24 bodies of 64 KiB left 100 MB of it.
            error.__traceback__ = None
        await response(scope, receive, send)
