"""Notes on the hosts on which a slice may have been made.

A claim is on its host, and that is what counts. A note, written before the first claim, tells which
hosts need not be asked about a slice: one that is away, and is not noted, has none of it. Where a
slice's note is missing, all hosts are asked.
"""

import json
import re
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from muster.autoscaling.standing import CreateOutcome
from muster.core.text import NAME
from muster.files import make_directory, write_whole
from muster.providers.provider import ProviderError
from muster.providers.ssh.host_list import Host, parse_host

KEPT_S = 7 * 86400.0
"""How long the note on a slice that is gone is kept: it may be asked for once more."""
_NAME = re.compile(NAME)
_LOCK = threading.Lock()
"""For changes: an object for a pool's former settings may have the same notes."""


class Notes:
    """The notes on a pool's slices, a file each.

    Args:
        directory: is made with the first note.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def hosts_of(self, slice_: str) -> frozenset[Host] | None:
        """The hosts that may be of a slice; None where there is no note.

        Raises:
            ProviderError: the note cannot be read.
        """
        path = self._path(slice_)
        try:
            return frozenset(map(parse_host, json.loads(path.read_text())))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise _unknown(f"cannot read {path}: {error}") from None

    def add(self, slice_: str, hosts: Iterable[Host]) -> None:
        """Note that a slice may have these hosts, beside those that are noted, and no others.

        Raises:
            ProviderError: the note cannot be written.
        """
        with _LOCK:
            noted, more = self.hosts_of(slice_), frozenset(hosts)
            if noted is None or not more <= noted:
                self._write(slice_, more.union(noted or ()))

    def remove(self, slice_: str, hosts: Iterable[Host]) -> None:
        """Note that a slice has no part of these hosts; without a note that says nothing of others.

        Raises:
            ProviderError: the note cannot be written.
        """
        with _LOCK:
            noted, less = self.hosts_of(slice_), frozenset(hosts)
            if noted is not None and noted & less:
                self._write(slice_, noted - less)

    def forget(self, slice_: str) -> None:
        """Remove the note on a slice, so that none of its hosts need be asked for its sake.

        Raises:
            ProviderError: the note cannot be removed.
        """
        path = self._path(slice_)
        with _LOCK:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise _unknown(f"cannot remove {path}: {error.strerror}") from None

    def hosts(self) -> set[Host]:
        """All hosts that are noted; notes on slices that have been gone for long are removed."""
        with _LOCK:
            found: set[Host] = set()
            for path in self._directory.glob("*.json"):
                with suppress(FileNotFoundError):
                    hosts = self.hosts_of(path.stem) or frozenset()
                    found |= hosts
                    if not hosts and path.stat().st_mtime < time.time() - KEPT_S:
                        path.unlink()
            return found

    def clear(self) -> None:
        """Remove all notes.

        Raises:
            ProviderError: some are left.
        """
        with _LOCK:
            try:
                for pattern in ("*.json", "*.new"):
                    for path in self._directory.glob(pattern):
                        path.unlink(missing_ok=True)
                with suppress(FileNotFoundError):
                    self._directory.rmdir()
            except OSError as error:
                told = f"cannot remove {self._directory}: {error.strerror}"
                raise _unknown(told) from None

    def _write(self, slice_: str, hosts: frozenset[Host]) -> None:
        path = self._path(slice_)
        try:
            make_directory(self._directory, is_set=True)
            write_whole(path, json.dumps(sorted(map(str, hosts))))
        except OSError as error:
            raise _unknown(f"cannot write {path}: {error.strerror}") from None

    def _path(self, slice_: str) -> Path:
        if not _NAME.fullmatch(slice_):
            raise _unknown(f"{slice_[:80]!r} is not the id of a slice")
        return self._directory / f"{slice_}.json"


def _unknown(told: str) -> ProviderError:
    return ProviderError(CreateOutcome.UNKNOWN, told)
