"""Revocations in a file beside the state, so that no restore of a backup undoes them.

The file is only written at its end, a line of JSON each:

{"cluster": ID, "since": S}     whatever this cluster revokes from that moment on follows
{"revoked": NAME, "at": S}      a token, join token, agent or user was revoked or removed
{"again": NAME, "at": S}        a user was added, who may have been removed before

Moments are in seconds since the epoch, names those of ``RevokedName``. The state tells all of it,
too, but a restore replaces the state.
"""

import json
import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from muster.control.plane import ControlPlane
from muster.core.clock import Clock
from muster.core.ids import TokenId
from muster.core.settings import SettingChange
from muster.core.states import AgentStatus
from muster.files import open_own, write_whole
from muster.store import schema

FILE = "revoked"
MAX_LINES = 200_000
"""Past this many lines a start forgets the older half, and the file speaks for a shorter time."""
_OVERLAP_S = 3600.0
"""How far before its last line a start looks for what a crash has kept out of the file."""

log = logging.getLogger(__name__)


class RevokedKind(StrEnum):
    """The kinds of what can be revoked; settings of these names, and agents."""

    TOKEN = "token"
    JOIN_TOKEN = "join-token"
    USER = "user"
    AGENT = "agent"


class RevokedName(NamedTuple):
    """The name of something that was revoked: the id of a token or agent, or ``domain/user``."""

    kind: RevokedKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @staticmethod
    def of(text: str) -> "RevokedName":
        """
        Raises:
            ValueError: it is no such name.
        """
        kind, _, name = text.partition(":")
        return RevokedName(RevokedKind(kind), name)


@dataclass(frozen=True, slots=True)
class Revocations:
    """All that is known to be revoked; ``since`` tells from when on nothing is missing, by
    cluster."""

    names: frozenset[RevokedName] = frozenset()
    since: Mapping[str, float] = field(default_factory=dict)

    def are_known(self, cluster: str, since: float) -> bool:
        """Whether all that the cluster has revoked since that moment is among them."""
        return self.since.get(cluster, since + 1.0) <= since


NOTHING_REVOKED = Revocations()


def read_revocations(home: Path) -> Revocations:
    """The content of the file of a home; nothing where there is none. Where a line is damaged, what
    was revoked until then counts as not known."""
    names: set[RevokedName] = set()
    since: dict[str, float] = {}
    for line in _lines(home / FILE):
        match line:
            case {"cluster": str(cluster), "since": float(moment)}:
                since.setdefault(cluster, moment)
            case {"revoked": RevokedName() as name}:
                names.add(name)
            case {"again": RevokedName() as name}:
                names.discard(name)
            case _:
                since.clear()
    return Revocations(frozenset(names), since)


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """The lines, their names as ``RevokedName``; one that is damaged is empty."""
    try:
        with file.open("rb") as lines:
            for line in lines:
                yield _line(line)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("cannot read %s: %s", file, error.strerror)
        yield {}


def _line(text: bytes) -> dict[str, Any]:
    try:
        said = json.loads(text)
        return {
            key: RevokedName.of(value) if key in ("revoked", "again") else value
            for key, value in said.items()
        }
    except (ValueError, AttributeError):
        return {}


class RevocationLog:
    """The file of the home that this process holds, to which it adds.

    Args:
        home: its directory.
        plane: of which every commit is looked at.
        clock: the cluster's.
        cluster: its id.
    """

    def __init__(self, home: Path, plane: ControlPlane, clock: Clock, cluster: str) -> None:
        self._file = home / FILE
        self._plane = plane
        self._clock = clock
        self._cluster = cluster
        self._left: list[dict[str, object]] = []
        """Lines that could not be written yet."""

    def begin(self, connection: Connection) -> None:
        """Begin the file, or go on with it: what a crash has kept out of it is added.

        Args:
            connection: reads the state of the cluster.
        """
        kept, now = read_revocations(self._file.parent), self._clock.now()
        if self._cluster not in kept.since:
            self._left.append({"cluster": self._cluster, "since": now})
        else:
            after = self._last_at() - _OVERLAP_S
            missed = [name for name in revoked_in(connection, after) if name not in kept.names]
            self._left += _said("revoked", missed, now)
        self._write()
        self._plane.watch(self._note)

    def _is_cut_off(self) -> bool:
        """Whether the last line is not whole, as after a loss of power, or on a full disk."""
        with suppress(OSError), self._file.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            return file.read(1) not in (b"", b"\n")
        return False

    def _last_at(self) -> float:
        """When the last line was written; the file is cut if it is too long."""
        lines = [line for line in _lines(self._file) if line]
        if len(lines) > MAX_LINES:
            lines = lines[-MAX_LINES // 2 :]
            first: dict[str, object] = {"cluster": self._cluster, "since": _moment(lines[0])}
            write_whole(self._file, "".join(map(_text, [first, *lines])))
        return max((_moment(line) for line in lines), default=0.0)

    def _note(self, events: Sequence[tuple[str, str, str]]) -> None:
        """Add what a commit has revoked."""
        gone: list[RevokedName] = []
        again: list[RevokedName] = []
        for kind, id_, status in events:
            if kind not in _KINDS:
                continue
            name = RevokedName(RevokedKind(kind), id_)
            if status in _GONE or self._is_used_up(name):
                gone.append(name)
            elif name.kind is RevokedKind.USER and status == SettingChange.ADDED:
                again.append(name)
        if gone or again or self._left:
            now = self._clock.now()
            self._left += _said("revoked", gone, now) + _said("again", again, now)
            self._write()

    def _is_used_up(self, name: RevokedName) -> bool:
        if name.kind is not RevokedKind.JOIN_TOKEN:
            return False
        token = self._plane.live.accounts.join_tokens.get(TokenId(name.name))
        return token is not None and token.uses_left == 0

    def _write(self) -> None:
        if not self._left:
            return
        before = "\n" if self._is_cut_off() else ""
        text = (before + "".join(map(_text, self._left))).encode()
        try:
            descriptor = open_own(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            with os.fdopen(descriptor, "ab") as file:  # writes all of it, or raises
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            log.error("cannot write %s: %s; tried again with the next", self._file, error.strerror)
        else:
            self._left.clear()


def revoked_in(connection: Connection, after: float) -> Iterator[RevokedName]:
    """Everything that a state tells to have been revoked since a moment."""
    rows = schema.history.c
    for kind in (RevokedKind.TOKEN, RevokedKind.JOIN_TOKEN, RevokedKind.USER):
        prefix = f"{kind}:"
        gone = select(rows.entity).where(
            rows.entity >= prefix,
            rows.entity < f"{kind};",  # the character after the colon
            rows.to_status == str(SettingChange.REMOVED),
            rows.last_at > after,
        )
        for (entity,) in connection.execute(gone):
            yield RevokedName.of(entity)
    agents = schema.agents.c
    removed = select(agents.id).where(
        agents.status == str(AgentStatus.REMOVED), agents.status_changed_at > after
    )
    for (id_,) in connection.execute(removed):
        yield RevokedName(RevokedKind.AGENT, id_)


def _said(what: str, names: Collection[RevokedName], at: float) -> list[dict[str, object]]:
    return [{what: str(name), "at": at} for name in names]


def _text(line: Mapping[str, object]) -> str:
    return json.dumps({key: _plain(value) for key, value in line.items()}) + "\n"


def _plain(value: object) -> object:
    return str(value) if isinstance(value, RevokedName) else value


def _moment(line: Mapping[str, object]) -> float:
    """The moment that a line names."""
    moment = line.get("at", line.get("since"))
    return moment if isinstance(moment, float) else 0.0


_GONE = frozenset({str(SettingChange.REMOVED), str(AgentStatus.REMOVED)})
_KINDS = frozenset(map(str, RevokedKind))
