"""`muster db restore` of a whole cluster: its files, and its state."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from muster.app.database import url_of
from muster.app.database_option import named_database
from muster.app.home import Home, Settings, UnusableHome
from muster.app.maintenance.archive import Archive, BadArchive, unpacked
from muster.app.maintenance.files import stamp, synchronize
from muster.app.maintenance.restoring import Restored, TokenChoice, restore
from muster.app.revocations import read_revocations
from muster.core.errors import MusterError
from muster.files import write_whole
from muster.store.database import shown_url, sqlite_url


@dataclass(frozen=True, slots=True)
class Revived:
    """A cluster that was put back. ``written`` are files of the home that were not there, or said
    something else; ``kept_aside`` says where these are now. ``state`` is None where the files alone
    were put back."""

    written: tuple[str, ...]
    kept_aside: tuple[Path, ...]
    database: str
    state: Restored | None


def revive(
    home: Home,
    named: str | None,
    file: Path,
    passphrase: str | None = None,
    *,
    discard_later: bool = False,
    choice: TokenChoice = TokenChoice.LISTED,
    files_only: bool = False,
) -> Revived:
    """Put a whole cluster back: its files into the home, its state into the database.

    The state comes first, as a whole; then each file that differs, the former one being kept aside.
    A command that was interrupted in between is to be called again.

    Args:
        named: the database; None means the home's, as for a controller.
        files_only: leaves the state as it is, as where it is on a server that is there still.

    Raises:
        MusterError: see ``restore`` and ``unpacked``; or the state was on a server, and the home
            does not say where it is to be.
    """
    home.create()
    with unpacked(file, home, passphrase) as archive:
        url = _target(home, named, archive)
        own = sqlite_url(home.database)
        with home.locked():
            state = None
            if not files_only:
                state = restore(
                    url,
                    archive.state,
                    discard_later=discard_later,
                    choice=choice,
                    revocations=read_revocations(home.path),
                    home=home,
                )
                state = replace(state, file=file)
            files = _with_database(archive.files, None if url == own else url)
            written, aside = _put(home, files)
    return Revived(written, aside, shown_url(url), state)


def _target(home: Home, named: str | None, archive: Archive) -> str:
    """
    Raises:
        MusterError: a state that was on a server would go into a file that nobody named.
    """
    chosen = named_database(named, home)
    if chosen is None and archive.database and not home.database.exists():
        raise MusterError(
            f"the state of this cluster was in the database {archive.database}: say with "
            f"--database where it is to be now, the same or another one, or a file such as "
            f"{home.database}"
        )
    return url_of(chosen, home)


def _with_database(files: Mapping[str, bytes], database: str | None) -> dict[str, bytes]:
    """The files, with settings that name the database in which the state is now, None being the
    home's own.

    Raises:
        BadArchive: the settings cannot be read.
    """
    if database is None and "settings.json" not in files:
        return dict(files)
    try:
        kept = msgspec.json.decode(files.get("settings.json", b"{}"), type=Settings)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadArchive(f"the settings.json of the backup is damaged: {error}") from None
    said = msgspec.to_builtins(replace(kept, database=database))
    return {**files, "settings.json": json.dumps(said).encode()}


def _put(home: Home, files: Mapping[str, bytes]) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Write the files that differ, each former one getting another name first.

    Raises:
        UnusableHome: one cannot be written; the command is to be called again then.
    """
    moment = stamp()
    written, aside = [], []
    for name, content in files.items():
        path = home.path / name
        try:
            if path.exists():
                if path.read_bytes() == content:
                    continue
                former = path.with_name(f"{name}.before-{moment}")
                former.hardlink_to(path)
                aside.append(former)
            write_whole(path, content)
        except OSError as error:
            raise UnusableHome(
                f"cannot write {path}: {error.strerror}; the state was put back, and this command "
                f"goes on with the files when it is called again"
            ) from None
        written.append(name)
    synchronize(home.path)
    return tuple(written), tuple(aside)
