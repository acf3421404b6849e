"""Server-sent events: a reset first, then what the reader may see."""

import json
import threading
from queue import Queue
from typing import Any

import httpx
import pytest
from tests.api.served import ADA, ADMIN, BOB, LIMIT_S, ServedCluster

from muster.api import events
from muster.core.owner import Owner, Role

TRUE = {"command": ["true"], "resources": {"cpu": "10m"}}


class Stream:
    """Reads events in a thread of its own."""

    def __init__(self, cluster: ServedCluster, owner: Owner, role: Role = Role.USER) -> None:
        self.lines: Queue[str] = Queue()
        self._stop = threading.Event()
        self._token = cluster.token(owner, role)
        self._url = cluster.url + "/v1/events"
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self.next() == {"kind": "reset", "id": "", "status": ""}

    def _read(self) -> None:
        headers = {"Authorization": f"Bearer {self._token}"}
        with httpx.stream("GET", self._url, headers=headers, timeout=LIMIT_S) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            for line in answer.iter_lines():
                self.lines.put(line)
                if self._stop.is_set():
                    return

    def next(self) -> Any:
        while True:
            line = self.lines.get(timeout=LIMIT_S)
            if line.startswith("data: "):
                return json.loads(line.removeprefix("data: "))

    def until(self, kind: str, id_: str, status: str) -> list[str]:
        """The ids of all that comes up to and with this."""
        seen: list[str] = []
        while True:
            event = self.next()
            seen.append(event["id"])
            if event == {"kind": kind, "id": id_, "status": status}:
                return seen


def test_owner_is_told_of_its_own_work_only_and_an_admin_of_all(
    cluster: ServedCluster, ada: httpx.Client, bob: httpx.Client
) -> None:
    adas, roots = Stream(cluster, ADA), Stream(cluster, ADMIN, Role.ADMIN)
    theirs = bob.post("/v1/jobs", json=TRUE).json()["id"]
    mine = ada.post("/v1/jobs", json=TRUE).json()["id"]
    ada.post(f"/v1/jobs/{mine}/cancel")
    seen = adas.until("job", mine, "KILLED")
    assert mine in seen
    assert f"{mine}/0" in seen or adas.until("task", f"{mine}/0", "KILLED")
    assert not [id_ for id_ in seen if id_.startswith(theirs)]
    assert {theirs, mine} <= set(roots.until("job", mine, "KILLED"))


def test_work_that_was_over_before_it_was_told_is_still_told(
    cluster: ServedCluster, ada: httpx.Client
) -> None:
    """What ends within one commit is not in the mirror any more: its owner is read from SQL."""
    adas, bobs = Stream(cluster, ADA), Stream(cluster, BOB)
    session = ada.post("/v1/sessions", json={"kernels": [TRUE]}).json()["id"]
    ada.post(f"/v1/sessions/{session}/cancel")
    adas.until("session", session, "TERMINATED")
    marker = cluster.client(BOB).submit(command=["true"]).id
    assert session not in bobs.until("job", marker, "RUNNING")


def test_silence_is_broken_by_a_comment(
    cluster: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.05)
    stream = Stream(cluster, BOB)
    while stream.lines.get(timeout=LIMIT_S) != ": nothing changed":
        pass
