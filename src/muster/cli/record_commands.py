"""Commands that follow from declarations: ``show`` from a kind of records, others from verbs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli.arguments import AsJson
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.each import each_record
from muster.cli.kinds.kind import Kind, Shown
from muster.cli.nearest import suggesting
from muster.cli.parameters import annotated
from muster.cli.streams import print_json
from muster.core.views.base import RecordView

if TYPE_CHECKING:
    from muster.client import Client
    from muster.client.resource import Records
    from muster.core.verbs import Verb

V = TypeVar("V", bound=RecordView)
D = TypeVar("D", bound=RecordView)


def show_command(
    kind: Kind[V, D],
    records: "Callable[[Client], Records[Client, ..., V, D]]",
    refs: Any,
    help: str,
) -> click.Command:
    """The command that shows one record of a kind, as `muster show` does.

    Args:
        records: those of the kind.
        refs: the annotation of its argument.
    """

    def show(cluster: Cluster, refs: str, as_json: AsJson = False) -> None:
        from muster.cli.screen import stdout, write

        whole = Shown()
        with cluster.client() as client, suggesting(client, refs, [kind]):
            found = records(client).show(refs)
            if as_json:
                print_json(kind.as_json(client, found, whole))
                return
            console = stdout()
            parts = kind.described(console, client, found, whole)
        write(console, *parts)

    return _command("show", help, show, refs)


def verb_command(
    verb: "Verb[V]", kind: Kind[Any, Any], refs: Any, *, suggested: str = "all"
) -> click.Command:
    """The command of a verb.

    Args:
        refs: the annotation of its argument: of one record, or of a list.
        suggested: the state of the records that are suggested for an unknown name.
    """

    def change(cluster: Cluster, refs: str | list[str], as_json: AsJson = False) -> None:
        from muster.cli.screen import show_change

        def change_and_tell(client: "Client", ref: str) -> None:
            changed: V = getattr(client, verb.name)(ref)
            show_change(changed, verb.said(changed), as_json=as_json)

        named = [refs] if isinstance(refs, str) else refs
        each_record(cluster, named, kind, change_and_tell, suggested=suggested)

    return _command(verb.word, verb.help, change, refs)


def _command(word: str, help: str, function: Callable[..., None], refs: Any) -> click.Command:
    """The command of a function whose parameter ``refs`` has this annotation."""
    function.__annotations__["refs"] = refs
    return click.command(word, help=help)(annotated(on_cluster(function)))
