"""The machine's clock was set back while no controller ran: its time goes on all the same."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from tests.e2e.cluster import Cluster, started

from muster.core.specs import JobSpec

HOUR_S = 3600.0


def test_controller_goes_on_from_the_moment_of_its_last_commit(tmp_path: Path) -> None:
    with started(Cluster(tmp_path / "home")) as cluster:
        with cluster.client() as client:
            client.submit(JobSpec(command=["x"]))
        cluster.kill_controller()
        # As if an hour more had passed before the clock was set to what it is now.
        with closing(sqlite3.connect(cluster.home.database)) as connection, connection:
            connection.execute("UPDATE outbox SET at = at + ?", (HOUR_S,))
        cluster.start_controller()
        cluster.running()
        with cluster.client() as client:
            job = client.submit(JobSpec(command=["x"]))
        ((submitted_at,),) = cluster.query("SELECT submitted_at FROM jobs WHERE id = ?", job.id)

    assert isinstance(submitted_at, float)
    assert submitted_at > time.time() + HOUR_S / 2
