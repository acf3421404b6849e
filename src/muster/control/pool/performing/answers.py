"""Answers of providers, which may be plug-ins that answer or raise anything: bounded, checked, and
without secrets."""

import logging
import math
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from muster.autoscaling.standing import MAX_TOLD, CreateOutcome
from muster.core.errors import MusterError
from muster.core.text import check_text, made_text, printable
from muster.providers.provider import MAX_LOG, Machine, MachineListing, MachineState, ProviderError

log = logging.getLogger(__name__)

MAX_MACHINES = 100_000
"""Machines that one answer may have."""
_LONGEST = 10_000
"""Characters of a text that are looked at."""
_FEWEST = 8
"""Characters of a secret that must not be told, at the end of a text that was cut."""
_OURS = frozenset({CreateOutcome.CREATED, CreateOutcome.NOT_BOOTED})
"""Outcomes that no error of a provider has."""


def shown(text: str, secret: str = "") -> str:
    """A text of a provider as it may be told: one line, of at most ``MAX_TOLD`` characters, without
    the secret."""
    text = text[:_LONGEST]
    if secret:
        text = text.replace(secret, "…")
        for length in range(len(secret) - 1, _FEWEST - 1, -1):
            if text.endswith(secret[:length]):
                text = text[:-length] + "…"
                break
    return made_text(printable(" ".join(text.split())), MAX_TOLD)


@contextmanager
def typed(pool: str, secret: str = "") -> Iterator[None]:
    """Turn whatever the block raises into a ProviderError whose text may be told.

    Raises:
        ProviderError: always, if anything is raised.
    """
    try:
        yield
    except ProviderError as error:
        said: object = error.outcome
        is_known = isinstance(said, CreateOutcome) and said not in _OURS
        outcome = error.outcome if is_known else CreateOutcome.UNKNOWN
        raise ProviderError(outcome, shown(_words(error.told), secret)) from None
    except MusterError as error:
        raise ProviderError(CreateOutcome.BAD_REQUEST, shown(_words(error), secret)) from None
    except BaseException as error:  # SystemExit too: a plug-in may raise anything
        told = shown(f"{type(error).__name__}: {_words(error)}", secret)
        # Without the error itself and those that it follows, whose texts could contain a secret.
        where = "".join(traceback.format_tb(error.__traceback__, limit=-8))
        log.warning("the provider of pool %s failed: %s\n%s", pool, told, where)
        raise ProviderError(CreateOutcome.UNKNOWN, told) from None


def _words(said: object) -> str:
    try:
        return str(said)
    except Exception:
        return "(its text cannot be told)"


def checked_machines(answer: object, secret: str = "") -> tuple[Machine, ...]:
    """The machines of an answer.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(answer, tuple | list) or len(answer) > MAX_MACHINES:
        raise ValueError(f"expected at most {MAX_MACHINES:,} machines")
    return tuple(_machine(each, secret) for each in answer)


def checked_listing(answer: object) -> MachineListing:
    """A listing.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(answer, MachineListing):
        raise ValueError("expected a listing")
    return MachineListing(checked_machines(answer.machines), answer.complete is True)


def checked_end(answer: object) -> bool:
    """Whether all machines are gone.

    Raises:
        ValueError: the answer is no answer to that.
    """
    if not isinstance(answer, bool):
        raise ValueError("expected true or false: whether all machines are gone")
    return answer


def checked_words(answer: object, secret: str = "") -> str:
    """The end of a machine's last words, as it may be told: see ``shown``.

    Raises:
        ValueError: they are no text.
    """
    if not isinstance(answer, str):
        raise ValueError("expected the last words of a machine")
    words = answer[-MAX_LOG:]
    if secret:
        words = words.replace(secret, "…")
        for length in range(len(secret) - 1, _FEWEST - 1, -1):
            if words.startswith(secret[-length:]):
                words = "…" + words[length:]
                break
    return made_text(printable(" ".join(words.split()))[-MAX_TOLD:], MAX_TOLD)


def _machine(found: object, secret: str) -> Machine:
    if not (isinstance(found, Machine) and isinstance(found.state, MachineState)):
        raise ValueError("expected machines")
    for text in (found.id, found.slice, found.name, found.address, found.detail):
        if not isinstance(text, str):
            raise ValueError("expected machines whose fields are text")
    for name in (found.id, found.slice, found.name):
        check_text(name)
    if found.leaves_at is not None and not math.isfinite(found.leaves_at):
        raise ValueError("expected the time at which a machine leaves")
    return replace(found, address=shown(found.address, secret), detail=shown(found.detail, secret))
