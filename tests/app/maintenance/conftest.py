import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.control.lived_in import make_lived_in

from muster.app.home import Home


@pytest.fixture(scope="session")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a database with all kinds of rows; nobody changes it."""
    return make_lived_in(tmp_path_factory.mktemp("lived_in"))


@pytest.fixture
def home(lived_in: Path, tmp_path: Path) -> Home:
    """A home with such a database, on which no controller runs."""
    home = Home(tmp_path / "home")
    home.create()
    copy_file(lived_in, home.database)
    return home


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, which is soon full."""
    path = tmp_path / "small"
    path.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(path)]
    if subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("no small disk can be mounted here")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def copy_file(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as original, closing(sqlite3.connect(target)) as copy:
        original.backup(copy)
