"""A word on stderr while a command that says nothing takes long."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

SLOW_S = 2.0
"""The silence after which a person wonders whether anything happens."""


def say(sentence: str) -> None:
    """Write the sentence on stderr."""
    click.echo(sentence, err=True)


@contextmanager
def told_if_slow(sentence: str) -> Iterator[Callable[[], None]]:
    """Write the sentence on stderr unless the block ends, or calls what it is given, within
    ``SLOW_S``."""
    timer = threading.Timer(SLOW_S, say, [sentence])
    timer.daemon = True
    timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()
        timer.join()  # it is not to speak in the middle of what follows
