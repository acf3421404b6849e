"""Doing something with each record that a command names."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli.exits import ExitCode
from muster.cli.nearest import suggesting
from muster.cli.parameters import naming_options

if TYPE_CHECKING:
    from muster.cli.cluster import Cluster
    from muster.cli.kinds.kind import Kind
    from muster.client import Client
    from muster.core.views.base import RecordView

V = TypeVar("V", bound="RecordView")


def each_record(
    cluster: "Cluster",
    refs: Sequence[str],
    kind: "Kind[Any, Any]",
    act: "Callable[[Client, str], None]",
    *,
    suggested: str = "all",
) -> None:
    """Do something with each record, even if it failed for an earlier one. Records in the state
    ``suggested`` are suggested for an unknown name.

    Raises:
        click.exceptions.Exit: with the worst of the exit codes.
    """
    from muster.cli import failures
    from muster.core.errors import MusterError

    worst: int = ExitCode.OK
    with cluster.client() as client:
        for ref in dict.fromkeys(refs):
            try:
                with naming_options(), suggesting(client, ref, [kind], state=suggested):
                    act(client, ref)
            except MusterError as error:
                worst = max(worst, failures.report(error))
    raise click.exceptions.Exit(worst)


def each_changed(
    cluster: "Cluster",
    refs: Sequence[str],
    kind: "Kind[Any, Any]",
    change: "Callable[[Client, str], V]",
    said: "Callable[[V], str]",
    *,
    as_json: bool,
) -> None:
    """Change each record, even if an earlier one was not, and tell what it is then: ``said``, or
    JSON.

    Raises:
        click.exceptions.Exit: with the worst of the exit codes.
    """
    from muster.cli.screen import show_change

    def change_and_tell(client: "Client", ref: str) -> None:
        changed = change(client, ref)
        show_change(changed, said(changed), as_json=as_json)

    each_record(cluster, refs, kind, change_and_tell)
