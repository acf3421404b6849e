"""Archives of a whole cluster: its state, and those files of the controller's data directory that
make it this cluster. A tar file, sealed with a passphrase if that is wished.

muster-backup.json  what the archive is, with the size and checksum of each other member
home/NAME           a file of the data directory
state.gz            the state, as `muster db backup` writes it
"""

import hashlib
import io
import json
import os
import shutil
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from muster.app.home import Home
from muster.app.maintenance.backup import Backup, write_state
from muster.app.maintenance.files import name_it, there_already, unfinished
from muster.app.maintenance.sealing import Cost, SealedFile, is_sealed, sealing
from muster.core.errors import MusterError
from muster.files import make_directory
from muster.store.database import shown_url, sqlite_url
from muster.version import __version__

FORMAT = 1
_MANIFEST, _STATE, _OF_HOME = "muster-backup.json", "state.gz", "home/"
_MAGIC = "muster_backup"
MAX_FILE_BYTES = 4 * 2**20
"""No file of a data directory that is archived is longer."""
_PIECE_BYTES = 2**20

HOME_FILES = (
    "ca.pem",
    "ca.key",
    "server.pem",
    "server.key",
    "join-token",
    "client.json",
    "settings.json",
    "notices.yaml",
    "health.yaml",
    "traffic.yaml",
)
"""The files of a data directory that are archived, where they are there: keys, tokens, settings."""


class BadArchive(MusterError):
    """The file is no archive of a cluster, not whole, or of a newer version."""


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive that was unpacked.

    Args:
        state: the file of the state.
        files: those of the data directory, by name.
        made_at: in seconds since the epoch.
        database: the database of the cluster, without a password; empty if it was the home's own.
    """

    state: Path
    files: Mapping[str, bytes]
    made_at: float
    database: str


@dataclass(frozen=True, slots=True)
class ClusterBackup:
    """A backup of a whole cluster that was made; ``files`` are those of the data directory."""

    state: Backup
    files: tuple[str, ...]
    size_bytes: int


def back_up_cluster(
    home: Home, url: str, file: Path, passphrase: str | None = None, cost: Cost | None = None
) -> ClusterBackup:
    """Write the state of a cluster and the files of its home to a new file, whether or not the
    controller runs.

    Args:
        url: of the database.
        passphrase: with which the file is encrypted; None does not encrypt it.

    Raises:
        MusterError: there is no state, a file cannot be read, or FILE exists already or cannot be
            written.
    """
    if file.exists():
        raise there_already(file)
    with unfinished(home.path / _STATE) as state_file:  # plain, as the state itself is there
        state = write_state(url, state_file)
        files = _kept_files(home)
        members = {f"{_OF_HOME}{name}": io.BytesIO(content) for name, content in files.items()}
        with unfinished(file) as path, path.open("wb") as written, state_file.open("rb") as rows:
            own = "" if url == sqlite_url(home.database) else shown_url(url)
            manifest = _manifest({**members, _STATE: rows}, state.made_at, own)
            if passphrase is None:
                _pack(written, manifest, {**members, _STATE: rows})
            else:
                with sealing(written, passphrase, cost) as sealed:
                    _pack(cast(BinaryIO, sealed), manifest, {**members, _STATE: rows})
            written.flush()
            os.fsync(written.fileno())
            name_it(path, file)
    return ClusterBackup(state, tuple(files), file.stat().st_size)


def _kept_files(home: Home) -> dict[str, bytes]:
    """
    Raises:
        MusterError: one cannot be read, or is too long to be what its name says.
    """
    kept = {}
    for name in HOME_FILES:
        path = home.path / name
        try:
            with path.open("rb") as opened:
                kept[name] = opened.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise MusterError(f"cannot read {path}: {error.strerror}") from None
        if len(kept[name]) > MAX_FILE_BYTES:
            raise MusterError(f"{path} has more than {MAX_FILE_BYTES >> 20} MiB: look at it")
    return kept


def _manifest(members: Mapping[str, IO[bytes]], made_at: float, database: str) -> bytes:
    sums = {}
    for name, content in members.items():
        sums[name] = {"bytes": content.seek(0, os.SEEK_END), "sha256": _checksum(content)}
    said = {_MAGIC: FORMAT, "version": __version__, "made_at": made_at, "database": database}
    return json.dumps({**said, "members": sums}).encode()


def _checksum(content: IO[bytes]) -> str:
    content.seek(0)
    checksum = hashlib.sha256()
    while piece := content.read(_PIECE_BYTES):
        checksum.update(piece)
    content.seek(0)
    return checksum.hexdigest()


def _pack(file: BinaryIO, manifest: bytes, members: Mapping[str, IO[bytes]]) -> None:
    with tarfile.open(mode="w|", fileobj=file, format=tarfile.PAX_FORMAT) as archive:
        for name, content in {_MANIFEST: io.BytesIO(manifest), **members}.items():
            entry = tarfile.TarInfo(name)
            entry.size = content.seek(0, os.SEEK_END)
            content.seek(0)
            entry.mode, entry.mtime = 0o600, int(time.time())
            archive.addfile(entry, content)


def is_archive(file: Path) -> bool:
    """Whether the file begins as an archive of a cluster, sealed or not.

    Raises:
        OSError: it cannot be read.
    """
    if is_sealed(file):
        return True
    with file.open("rb") as opened:
        return opened.read(len(_MANIFEST)) == _MANIFEST.encode()


@contextmanager
def unpacked(file: Path, home: Home, passphrase: str | None) -> Iterator[Archive]:
    """The content of an archive. Its state is in a file of the home until the end of the block;
    nothing is believed before all of it was looked at.

    Raises:
        BadArchive, BadSeal: it is no archive, is damaged, or has what no archive may have.
        MusterError: it cannot be read, or the home cannot be written.
    """
    place = home.path / ".restoring"
    try:
        shutil.rmtree(place, ignore_errors=True)  # left by a command that was killed
        yield _read(file, place, passphrase)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _read(file: Path, place: Path, passphrase: str | None) -> Archive:
    try:
        make_directory(place)
        with file.open("rb") as opened:
            source = opened if passphrase is None else SealedFile(opened, passphrase)
            return _unpack(file, source, place)
    except tarfile.TarError as error:
        raise BadArchive(f"{file} is no backup of a cluster, or is damaged: {error}") from None
    except OSError as error:
        raise MusterError(f"cannot read {file} into {place}: {error.strerror or error}") from None


def _unpack(file: Path, source: Any, place: Path) -> Archive:
    state, files = place / _STATE, {}
    seen: dict[str, tuple[int, str]] = {}
    with tarfile.open(mode="r|", fileobj=source) as archive:
        entries = _members(file, archive)
        first, content = next(entries, (None, None))
        if first is None or content is None or first.name != _MANIFEST:
            raise BadArchive(f"{file} is no backup of a cluster")
        said = _manifest_of(file, content.read(MAX_FILE_BYTES))
        for entry, content in entries:
            if entry.name in seen:
                raise BadArchive(f"{file} is damaged: it has {entry.name} twice")
            if entry.name == _STATE:
                seen[_STATE] = _copy(content, state)
            else:
                read = content.read(MAX_FILE_BYTES)
                files[entry.name.removeprefix(_OF_HOME)] = read
                seen[entry.name] = len(read), hashlib.sha256(read).hexdigest()
    while source.read(_PIECE_BYTES):  # what is behind the last member is sealed, too
        pass
    told = {name: (each["bytes"], each["sha256"]) for name, each in said["members"].items()}
    if seen != told or _STATE not in seen:
        differing = {*seen.items()} ^ {*told.items()}
        names = ", ".join(sorted({name for name, _ in differing})) or _STATE
        raise BadArchive(f"{file} is damaged: {names} is missing, or not as it was")
    return Archive(state, files, float(said["made_at"]), str(said["database"]))


def _members(file: Path, archive: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """The members, each an ordinary file of one of the names that an archive has.

    Raises:
        BadArchive: one is another; where its name leads is not even looked at.
    """
    known = {_MANIFEST, _STATE, *(f"{_OF_HOME}{name}" for name in HOME_FILES)}
    for entry in archive:
        is_plain = entry.isreg() and not entry.issparse()
        content = archive.extractfile(entry) if is_plain else None
        if entry.name not in known or content is None:
            raise BadArchive(f"{file} has a member {entry.name[:100]!r}, which no backup has")
        if entry.name != _STATE and entry.size > MAX_FILE_BYTES:
            raise BadArchive(f"{file} has a member {entry.name!r} of {entry.size:,} bytes")
        yield entry, content


def _manifest_of(file: Path, text: bytes) -> dict[str, Any]:
    try:
        said = json.loads(text)
        if said[_MAGIC] != FORMAT:
            raise BadArchive(
                f"{file} is a backup of a newer version of Muster ({said.get('version')}): install "
                f"that one to restore it"
            )
        float(said["made_at"]), str(said["database"])
        for each in said["members"].values():
            int(each["bytes"]), str(each["sha256"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadArchive(f"{file} is no backup of a cluster, or is damaged") from None
    return dict(said)


def _copy(content: IO[bytes], target: Path) -> tuple[int, str]:
    """Write the content to a new file of this user alone; its size and checksum.

    Raises:
        OSError: it cannot be written, as where the disk has no room for it.
    """
    checksum, size = hashlib.sha256(), 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as written:
        while piece := content.read(_PIECE_BYTES):
            size += written.write(piece)
            checksum.update(piece)
    return size, checksum.hexdigest()
