"""A record that ends between the read from SQL and the look into the mirror."""

from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Connection
from tests.api.served import LARGE, ServedCluster

from muster.api.resources.sessions import SESSIONS
from muster.core.owner import Principal
from muster.core.views.work import SessionView
from muster.store.queries.sessions import read_session


@pytest.mark.parametrize("endpoint", ["", "/why"])
def test_record_that_ends_while_it_is_looked_up_is_told_as_ended(
    tmp_path: Path, endpoint: str
) -> None:
    def read(connection: Connection, principal: Principal, ref: str) -> SessionView:
        """Reads the session, and has it cancelled before the answer is used."""
        found = read_session(connection, principal, ref)
        with cluster.client() as client:
            client.cancel(found.id)
        return found

    late = replace(SESSIONS, path="/v1/late", read=read, show=None)
    cluster = ServedCluster(tmp_path, {"a1": LARGE}, more_resources=[late])
    cluster.start()
    try:
        with cluster.client() as client:
            kernel = {"command": ["x"], "resources": {"cpu": 100}}
            session = client.submit({"kind": "session", "kernels": [kernel]})
        headers = {"Authorization": f"Bearer {cluster.token()}"}
        told = httpx.get(f"{cluster.url}/v1/late/{session.id}{endpoint}", headers=headers).json()
        assert told["status"] == "CANCELLED"
    finally:
        cluster.stop()
