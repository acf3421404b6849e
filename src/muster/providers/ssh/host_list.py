"""Lists of hosts as people write them: ``gpu07``, ``ubuntu@10.0.0.7:2222``, ``gpu[01-16,20]``."""

import ipaddress
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MAX_HOSTS = 10_000
DEFAULT_PORT = 22

USER = r"[A-Za-z_][A-Za-z0-9_.-]{0,63}"
_USER = re.compile(USER)
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL}){{0,126}}")
_RANGES = re.compile(r"\[([0-9][0-9,-]{0,200})\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class Host:
    """A machine of the list; whom it is entered as does not make it another.

    Args:
        address: its name or IP address.
        user: whom to log in as; None where the list does not say.
    """

    address: str
    port: int | None = None
    user: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """The host as the list has it, which ``parse_host`` reads."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        user = "" if self.user is None else f"{self.user}@"
        return f"{user}{address}" if self.port is None else f"{user}{address}:{self.port}"


def expand(entries: Iterable[str]) -> Iterator[Host]:
    """The hosts of a list.

    Raises:
        ValueError: an entry is no host, or there are too many.
    """
    number = 0
    for entry in entries:
        for text in _expanded(entry):
            number += 1
            if number > MAX_HOSTS:
                raise ValueError(f"expected at most {MAX_HOSTS} hosts")
            yield parse_host(text)


def parse_host(text: str) -> Host:
    """The host in ``user@host:port``, of which user and port may be missing.

    Raises:
        ValueError: it is none.
    """
    user, at, place = text.rpartition("@")
    if place.startswith("["):  # an address of IPv6
        address, closed, port = place[1:].partition("]")
        well_formed = bool(closed) and _is_ipv6(address) and (not port or port[0] == ":")
        port = port[1:]
    elif place.count(":") > 1:
        address, port, well_formed = place, "", _is_ipv6(place)
    else:
        address, _, port = place.partition(":")
        well_formed = _NAME.fullmatch(address) is not None and not place.endswith(":")
    if at and not _USER.fullmatch(user):
        well_formed = False
    if port and not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536):
        well_formed = False
    if not well_formed:
        raise ValueError(
            f"expected hosts such as gpu07, user@host:port or gpu[01-16], not {text[:80]!r}"
        )
    return Host(address, int(port) if port else None, user or None)


def _expanded(entry: str) -> Iterator[str]:
    """The entry with each of its ranges replaced by each of its numbers.

    Raises:
        ValueError: a range is none, or too large.
    """
    found = _RANGES.search(entry)
    if found is None:
        yield entry
        return
    before, after = entry[: found.start()], entry[found.end() :]
    for number in _numbers(found.group(1)):
        for rest in _expanded(after):
            yield f"{before}{number}{rest}"


def _numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        read = _RANGE.fullmatch(part)
        first, last = (read.group(1), read.group(2) or read.group(1)) if read else ("1", "0")
        if not 0 <= int(last) - int(first) < MAX_HOSTS:
            raise ValueError(f"expected a range such as [01-16], not {part[:40]!r}")
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
