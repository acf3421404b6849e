"""A cluster's state is looked at and copied while it runs, and put back."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.cluster import client_of

from muster.app.home import Home
from muster.app.local import UpOptions, down, up
from muster.app.maintenance.backup import back_up
from muster.app.maintenance.checking import check
from muster.app.maintenance.restoring import restore
from muster.core.errors import Conflict
from muster.store.database import sqlite_url


def test_backup_of_a_running_cluster_has_all_that_was_accepted_and_comes_back(
    home: Home, tmp_path: Path
) -> None:
    up(UpOptions(home.path, agents=1))
    file, url = tmp_path / "copy", sqlite_url(home.database)
    with client_of(home) as cluster:
        before = cluster.submit(command="true", name="before")
        back_up(url, file)
        cluster.submit(command="sleep 60", name="after")
        assert [each for each in check(url) if each.found or each.trouble] == []
        with pytest.raises(Conflict, match="muster down"):
            restore(url, file)
    down(home.path)
    with pytest.raises(Conflict, match=r"\(after\).*--discard-later"):
        restore(url, file)
    restored = restore(url, file, discard_later=True)
    assert restored.made.kept_aside is not None
    with closing(sqlite3.connect(restored.made.kept_aside)) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM jobs")}
    assert names == {"before", "after"}
    up(UpOptions(home.path))
    with client_of(home) as cluster:
        assert [job.name for job in cluster.jobs("all")] == ["before"]
        assert cluster.wait(before.id, 30.0).state == "SUCCEEDED"
        assert [each for each in check(url) if each.found or each.trouble] == []
