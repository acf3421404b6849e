"""The cluster that a command speaks to: ``--url``, ``--token``, ``--home`` and ``--ca``, before or
after the command's name."""

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import click

from muster.cli.parameters import Option

if TYPE_CHECKING:
    from muster.client import Client

P = ParamSpec("P")
R = TypeVar("R")

Url = Annotated[
    str | None,
    Option("--url", metavar="URL", help="Address of the controller. [env: MUSTER_URL]"),
]
Token = Annotated[
    str | None,
    Option("--token", metavar="TOKEN", help="API token. [env: MUSTER_TOKEN]"),
]
Home = Annotated[
    Path | None,
    Option(
        "--home", metavar="DIR", help="Directory of the cluster. [env: MUSTER_HOME; or ~/.muster]"
    ),
]
Ca = Annotated[
    Path | None,
    Option(
        "--ca", metavar="FILE", help="Authority of the controller's certificate. [env: MUSTER_CA]"
    ),
]


TIMEOUT_S = 30.0
"""Longest wait for one answer of the controller."""


OnContact = Callable[[bool], None]
"""Hears False when the controller does not answer, and True when it does again."""


def connect(cluster: "Cluster", timeout_s: float, on_contact: OnContact | None) -> "Client":
    """A client of the cluster that the options, the environment or the home directory name."""
    from muster.client import Client

    # Otherwise pydantic reads the metadata of every installed package, in search of plug-ins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if cluster.home is not None:
        os.environ["MUSTER_HOME"] = str(cluster.home.expanduser().absolute())
    return Client(
        cluster.url,
        cluster.token,
        ca=cluster.ca,
        timeout_s=timeout_s,
        on_contact=on_contact,
        comes_back=_is_kept_alive,
    )


def _is_kept_alive(url: str) -> bool:
    """Whether a process on this machine starts the controller at the URL again when it crashes."""
    from muster.app.home import Home, default_home
    from muster.app.keeper import is_kept

    home = Home(default_home())
    running = home.running()
    return running is not None and running.url == url and is_kept(home)


class Cluster(NamedTuple):
    """The cluster that a command speaks to, by the options so far; tests replace ``connector``."""

    url: str | None = None
    token: str | None = None
    home: Path | None = None
    ca: Path | None = None
    connector: "Callable[[Cluster, float, OnContact | None], Client]" = connect

    def client(self, timeout_s: float = TIMEOUT_S, on_contact: OnContact | None = None) -> "Client":
        """A new connection; each thread needs its own. With ``on_contact`` its requests are
        patient.

        Raises:
            MusterError: no address or token is known.
        """
        return self.connector(self, timeout_s, on_contact)

    def said(
        self, url: str | None, token: str | None, home: Path | None, ca: Path | None = None
    ) -> "Cluster":
        """The cluster with these options in place of its own, where they are given."""
        return self._replace(
            url=url or self.url,
            token=token or self.token,
            home=home or self.home,
            ca=ca or self.ca,
        )


def on_cluster(command: Callable[Concatenate[Cluster, P], R]) -> Callable[..., R]:
    """Give a command the options of ``Cluster``, and the command a ``Cluster`` made of them."""

    @functools.wraps(command)
    def with_cluster(
        *,
        ctx: click.Context,
        url: str | None,
        token: str | None,
        home: Path | None,
        ca: Path | None,
        **arguments: Any,
    ) -> R:
        cluster: Cluster = ctx.obj
        return command(cluster.said(url, token, home, ca), **arguments)  # type: ignore[call-arg]

    def parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(name, kind, annotation=annotation, default=default)

    own = list(inspect.signature(command).parameters.values())[1:]
    parameters = [
        parameter("ctx", click.Context, inspect.Parameter.empty),
        *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own),
        parameter("url", Url),
        parameter("token", Token),
        parameter("home", Home),
        parameter("ca", Ca),
    ]
    with_cluster.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_cluster.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_cluster
