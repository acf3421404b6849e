"""A word on stderr while a command that says nothing takes long."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from muster.cli.streams import say

SLOW_S = 2.0
"""The silence after which a person wonders whether anything happens."""
LONGEST_S = 1.0
"""How long the end of the block waits for a sentence that is being written."""


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
        timer.join(LONGEST_S)  # it is not to speak in the middle of what follows
