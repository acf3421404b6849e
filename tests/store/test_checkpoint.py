"""The log of the database is copied while its writer goes on."""

import sqlite3
from pathlib import Path

from tests.databases import ONLY_SQLITE

from muster.store.database import checkpoint, open_engine, sqlite_url

pytestmark = ONLY_SQLITE


def test_log_is_copied_while_a_writer_has_it_open(tmp_path: Path) -> None:
    path = tmp_path / "muster.db"
    engine = open_engine(sqlite_url(path))
    with engine.begin() as writer:
        writer.exec_driver_sql("INSERT INTO cluster VALUES ('a', 'b')")
    with engine.begin() as writer:
        writer.exec_driver_sql("INSERT INTO cluster VALUES ('c', 'd')")
        assert checkpoint(engine) == 0
        writer.exec_driver_sql("INSERT INTO cluster VALUES ('e', 'f')")
    without_log = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    found = {key for (key,) in without_log.execute("SELECT key FROM cluster")}
    assert found == {"a"}, "the rest is in the log still"
    without_log.close()
    engine.dispose()
