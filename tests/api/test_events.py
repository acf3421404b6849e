"""Server-sent events: a reset first, then what the reader may see."""

import json
import threading
from queue import Queue
from typing import Any

import httpx
import pytest
from tests.api.served import ADA, ADMIN, BOB, LIMIT_S, ServedCluster

from muster.api import events
from muster.api.allowance import Allowance
from muster.core.owner import Owner, Role

TRUE = {"command": ["true"], "resources": {"cpu": "10m"}}


class Stream:
    """Reads events in a thread of its own, as a context."""

    def __init__(self, cluster: ServedCluster, owner: Owner, role: Role = Role.USER) -> None:
        self.lines: Queue[str] = Queue()
        self._cluster, self._token = cluster, cluster.token(owner, role)
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> "Stream":
        self._thread.start()
        assert self.next() == {"kind": "reset", "id": "", "status": ""}
        return self

    def __exit__(self, *_: object) -> None:
        """Leave: the next line, if only a comment, is the last."""
        self._left.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()

    def _read(self) -> None:
        headers = {"Authorization": f"Bearer {self._token}"}
        url = self._cluster.url + "/v1/events"
        with httpx.stream("GET", url, headers=headers, timeout=LIMIT_S) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            for line in answer.iter_lines():
                self.lines.put(line)
                if self._left.is_set():
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


@pytest.fixture(autouse=True)
def _short_silences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.05)


def test_owner_is_told_of_its_own_work_only_and_an_admin_of_all(
    cluster: ServedCluster, ada: httpx.Client, bob: httpx.Client
) -> None:
    with Stream(cluster, ADA) as adas, Stream(cluster, ADMIN, Role.ADMIN) as roots:
        theirs = bob.post("/v1/jobs", json=TRUE).json()["id"]
        mine = ada.post("/v1/jobs", json=TRUE).json()["id"]
        ada.post(f"/v1/jobs/{mine}/cancel")
        seen = adas.until("task", f"{mine}/0", "KILLED")
        assert mine in seen
        assert not [id_ for id_ in seen if id_.startswith(theirs)]
        seen = roots.until("task", f"{mine}/0", "KILLED")
        assert {theirs, mine} <= set(seen)


def test_what_was_over_before_it_was_told_is_still_its_owners_only(
    cluster: ServedCluster, ada: httpx.Client, bob: httpx.Client
) -> None:
    """It is not in the mirror any more then: its owner is read from SQL."""
    with Stream(cluster, ADA) as adas, Stream(cluster, BOB) as bobs:
        session = ada.post("/v1/sessions", json={"kernels": [TRUE]}).json()["id"]
        ada.post(f"/v1/sessions/{session}/cancel")
        adas.until("session", session, "TERMINATED")
        marker = bob.post("/v1/jobs", json=TRUE).json()["id"]
        assert session not in bobs.until("job", marker, "RUNNING")


def test_reader_too_many_is_refused_with_a_sentence(
    cluster: ServedCluster, bob: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.app.state.api.changes, "_following", Allowance("streams", 1, 9))
    with Stream(cluster, BOB):
        answer = bob.get("/v1/events")
        assert (answer.status_code, answer.json()["code"]) == (429, "busy")
        with Stream(cluster, ADA):
            pass


def test_stream_ends_whole_after_its_longest_time(
    ada: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LONGEST_S", 0.2)
    answer = ada.get("/v1/events")
    assert answer.text.startswith('data: {"kind":"reset"')
    assert ": nothing changed" in answer.text


def test_silence_is_broken_by_a_comment(cluster: ServedCluster) -> None:
    with Stream(cluster, BOB) as stream:
        while stream.lines.get(timeout=LIMIT_S) != ": nothing changed":
            pass
