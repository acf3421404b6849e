"""A cluster moves to a server and back while its kernels run, and is put back there."""

from pathlib import Path

import pytest
from tests.databases import Server
from tests.e2e.cluster import client_of
from tests.e2e.markers import Work
from tests.patience import until

from muster.app.home import Home
from muster.app.local import UpOptions, down, up
from muster.app.maintenance.backup import back_up
from muster.app.maintenance.checking import check
from muster.app.maintenance.copying import copy
from muster.app.maintenance.place import database_of
from muster.app.maintenance.restoring import restore
from muster.core.errors import Conflict


def assert_sound(url: str) -> None:
    assert [each for each in check(url) if each.found or each.trouble] == []


def test_kernels_run_on_while_their_cluster_moves_to_a_server_and_back(
    home: Home, tmp_path: Path, postgresql: Server
) -> None:
    server = postgresql.url(postgresql.empty_database())
    up(UpOptions(home.path, agents=1))
    with client_of(home) as client:
        work = Work(client, tmp_path)
    for target in (server, str(tmp_path / "back.db")):
        with pytest.raises(Conflict, match="muster down"):
            copy(home, database_of(home, None), target)
        down(home.path, keep_kernels=True)
        assert copy(home, database_of(home, None), target).is_used
        up(UpOptions(home.path))
        assert_sound(database_of(home, None))
    with client_of(home) as client:
        client.submit(command="true", name="later")
        (work.markers / "go").touch()
        assert client.wait(work.job, 60.0).state == "SUCCEEDED"
        assert len(client.task(work.job, 0).attempts) == 1
        assert client.wait("later", 60.0).state == "SUCCEEDED"
    assert len(work.marks("begin")) == len(work.marks("end")) == 1
    assert_sound(database_of(home, None))


def test_servers_state_is_put_back_and_kernels_of_later_work_are_stopped(
    home: Home, tmp_path: Path, postgresql: Server
) -> None:
    url, file = postgresql.url(postgresql.empty_database()), tmp_path / "backup"
    up(UpOptions(home.path, agents=1, database=url))
    with client_of(home) as client:
        work = Work(client, tmp_path)
        back_up(url, file)
        later = client.submit(command="sleep 600", name="later").id
        until(lambda: client.job(later).state == "RUNNING")
        with pytest.raises(Conflict, match="a controller, or another command, works on"):
            restore(url, file)
    down(home.path, keep_kernels=True)
    with pytest.raises(Conflict, match=r"\(later\).*--discard-later"):
        restore(url, file)
    assert restore(url, file, discard_later=True).made.kept_aside is not None
    up(UpOptions(home.path))
    with client_of(home) as client:
        assert [job.id for job in client.jobs("all")] == [work.job]
        (work.markers / "go").touch()
        assert client.wait(work.job, 60.0).state == "SUCCEEDED"
    assert len(work.marks("begin")) == len(work.marks("end")) == 1
    assert_sound(url)
