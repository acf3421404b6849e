"""Fixtures and settings of all tests."""

import gc
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.client.authority import certificate
from tests.databases import DATABASES, Server, on_server, running_server
from tests.tiers import TimesWriter, mark_thorough

# How fast a machine draws examples says nothing of what is tested.
settings.register_profile("muster", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("muster")

CGROUPS = Path("/sys/fs/cgroup")
OF_THE_STATE = {Path(__file__).with_name("store"), Path(__file__).with_name("control")}
USERS = Path("/var/lib/muster/users")
LEAVING_S = 20.0
WAITING = {Path(__file__).with_name(folder) for folder in ("e2e", "providers")}
"""Their tests wait for other processes, most of the time."""
BUSY = Path(__file__).with_name("proving")
"""Its tests take long, and wait for nothing."""
OTHERS_EACH = 5
"""Files of other tests that are begun for each file of those that wait: they take as long."""


@pytest.fixture(scope="session", autouse=True)
def _interrupts_are_not_ignored() -> None:
    """A shell has the background processes of a script ignore Ctrl-C, and nohup the end of a
    terminal, and so these tests."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _few_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests talk to this machine alone. Each client of HTTP that they make would read all
    authorities of the world, which takes longer than most tests do."""
    only = certificate(tmp_path_factory.mktemp("authorities"), "nobody")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(only.certificate))
        yield


@pytest.fixture
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with as many CPUs as the pools of tests ask for; those are never used."""
    monkeypatch.setattr(os, "cpu_count", lambda: 64)


@pytest.fixture(scope="session", autouse=True)
def _nothing_stays_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No process, cgroup, temporary file or account of a user, once all tests have run.

    Homes of users, where agents run as root, are in a directory that users can enter.
    """
    place = tmp_path_factory.getbasetemp()
    of_others = cgroups()  # their names have numbers of directories, which are used again
    temporary = tmp_path_factory.mktemp("temporary", numbered=False)
    users = Path(tempfile.mkdtemp(prefix="muster-users-", dir="/tmp"))
    users.chmod(0o711)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUSTER_USERS_DIR", str(users))
        patch.setattr(tempfile, "tempdir", str(temporary))
        yield
    from tests.e2e.cluster import assert_no_survivors

    for each in (place, users):
        assert_no_survivors(each)
    shutil.rmtree(users)
    assert [*temporary.iterdir()] == []
    assert cgroups_of(place, of_others) == set()
    assert [owner for owner in owners() if owner.startswith(str(place))] == []


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A PostgreSQL server for all tests of this process."""
    with running_server() as server:
        yield server


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--database",
        choices=DATABASES,
        help="run all tests of the store and of control on this kind of database, and those that "
        "are for both kinds on this one alone",
    )
    parser.addoption(
        "--write-times",
        action="store_true",
        help="note how long each test takes, for the choice of those that make test runs",
    )


def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    if config.getoption("--write-times") and not is_worker:
        config.pluginmanager.register(TimesWriter())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the kinds of database on which a test runs, by ``--database`` and its marker."""
    chosen = metafunc.config.getoption("--database")
    marker = metafunc.definition.get_closest_marker("databases")
    if marker is not None:
        kinds = marker.args
    else:
        kinds = DATABASES if chosen and OF_THE_STATE & {*metafunc.definition.path.parents} else ()
    if kinds:
        on = [kind for kind in kinds if chosen in (None, kind)]
        metafunc.parametrize("database", on, indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put slow folders first, so that no worker is alone with one of their files in the end. Files
    whose tests wait and those whose tests do not take turns, so that workers seldom all wait at a
    time."""
    mark_thorough(config, items)
    files = [*dict.fromkeys(item.path for item in items)]
    files.sort(key=lambda path: BUSY not in path.parents)
    waiting = [path for path in files if not WAITING.isdisjoint(path.parents)]
    others = [path for path in files if WAITING.isdisjoint(path.parents)]
    turns = {path: OTHERS_EACH * turn for turn, path in enumerate(waiting)}
    turns |= {path: turn for turn, path in enumerate(others)}
    items.sort(key=lambda item: turns[item.path])


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over what lives as long as this process, such as the modules
    of all tests: looking through it again and again took a sixth of the time of the tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """The kind of database at ``tests.databases.url_at``: SQLite unless told otherwise."""
    kind = getattr(request, "param", "sqlite")
    if kind == "sqlite":
        yield kind
        return
    with on_server(request.getfixturevalue("postgresql")):
        yield kind


def cgroups() -> set[Path]:
    """All cgroups of supervisors."""
    return {
        Path(above, name)
        for above, below, _ in os.walk(CGROUPS)
        for name in below
        if name.startswith("muster-")
    }


def cgroups_of(place: Path, of_others: set[Path]) -> set[Path]:
    """The cgroups of supervisors on directories in ``place`` that stay, however long one waits."""
    found = [each.stat() for each in (place, *place.rglob("*")) if each.is_dir()]
    names = {f"muster-{stat.st_dev:x}-{stat.st_ino:x}" for stat in found}
    deadline_s = time.monotonic() + LEAVING_S
    while left := {each for each in cgroups() - of_others if each.name in names}:
        if time.monotonic() > deadline_s:
            break
        time.sleep(0.1)
    return left


def owners() -> list[str]:
    """To whom the agents of this machine have given accounts, each with its cluster."""
    return [owner.read_text() for owner in USERS.glob("*/owner")]
