"""Verbs: changes to one record that people ask for by name, and that take nothing but the record.

A verb is declared once, in the module here for its kind of records. From the declaration follow its
endpoint (``api.verbs``), the method of both clients (``ClientResource.verb``) and its command
(``cli.record_commands``). What it does is a request of control.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

V = TypeVar("V")


class Verb(msgspec.Struct, Generic[V], frozen=True):
    """The declaration of a verb. The answer to its request is a view ``V`` of the record.

    Args:
        name: of the endpoint and of the clients' method; it begins with the word of the command.
        does: what it does to a record, in the words of the endpoint and of the method.
        help: what it does, in the words of the command, which may take several records.
        said: the sentence that the command prints, of the record afterwards.
    """

    name: str
    does: str
    help: str
    said: Callable[[V], str]

    @property
    def word(self) -> str:
        """The command, and the end of the endpoint's path: ``pause`` of ``pause_pool``."""
        return self.name.partition("_")[0]
