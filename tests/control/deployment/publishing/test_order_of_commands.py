"""A service that had a server for its requests and is to have one has one after each command to a
balancer, whatever the commands are and wherever they end."""

import base64
import json
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.control.deployment.publishing.balancers import service
from tests.control.deployment.publishing.haproxy_model import HaproxyModel, ModelApi

from muster.control.deployment.publishing import etcd as etcd_sink
from muster.control.deployment.publishing import haproxy as haproxy_sink
from muster.control.deployment.publishing.etcd import EtcdSink
from muster.control.deployment.publishing.haproxy import HaproxySink
from muster.control.deployment.publishing.settings import EtcdSettings, HaproxySettings
from muster.control.deployment.publishing.sink import SinkError
from muster.core.serving.traffic import Target, TrafficService
from muster.proxy.services import LiveService

Weights = Mapping[int, int]
"""The weights of the replicas of a set, by their numbers."""

weights = st.dictionaries(st.integers(0, 5), st.sampled_from([0, 0, 1, 2, 300]), max_size=6)
BLUE = {0: 1, 1: 1, 2: 0, 3: 0}
GREEN = {0: 0, 1: 0, 2: 1, 3: 1}


def chat(of: Weights, affinity: str | None = None) -> TrafficService:
    targets = [
        Target(route=f"rte-{number}", host="127.0.0.1", port=8000 + number, revision=1, weight=each)
        for number, each in of.items()
    ]
    return service("chat", *targets, drain_s=0.0, affinity=affinity)


def takes_requests(of: Weights) -> bool:
    return any(of.values())


class Driven:
    """A sink that drives a model of HAProxy, which knows a service of these replicas."""

    def __init__(self, place: Path, of: Weights) -> None:
        (place / "muster.cfg").touch()
        (place / "muster.map").touch()
        self.model = HaproxyModel(place)
        given = {"socket": "/none", "file": f"{place}/muster.cfg", "reload": ["true"]}
        self.sink = HaproxySink(
            HaproxySettings.model_validate(given), lambda _: None, lambda _: ModelApi(self.model)
        )
        self.publish(chat(of))
        self.model.reload()

    def publish(self, service: TrafficService) -> str:
        """The sink's complaint, empty if all was done."""
        try:
            return self.sink.publish([service]).complaint
        except SinkError as error:
            return str(error)

    def taking(self) -> dict[str, int]:
        """The weights of the servers that take requests."""
        servers = self.model.backends[self.model.keys["/chat"]]
        return {route: each.weight for route, each in servers.items() if each.takes_requests}


@contextmanager
def driven(of: Weights) -> Iterator[Driven]:
    with (
        tempfile.TemporaryDirectory() as place,
        patch.object(haproxy_sink, "PERIOD_S", 0.0),
        patch.object(haproxy_sink, "LOAD_PERIOD_S", 3600.0),
    ):
        yield Driven(Path(place), of)


def never_without(is_served: Callable[[], bool]) -> Callable[[], None]:
    """A check that fails once there was a server and there is none."""
    was_served = is_served()

    def check() -> None:
        nonlocal was_served
        now_served = is_served()
        assert now_served or not was_served, "no server takes requests"
        was_served = now_served

    return check


@settings(max_examples=200, deadline=None)
@example(sets=[BLUE, GREEN], ends_after=1, refuses=frozenset())
@example(sets=[BLUE, GREEN], ends_after=None, refuses=frozenset({0, 1}))
@example(sets=[{0: 1}, {1: 1}], ends_after=None, refuses=frozenset({1}))
@given(
    sets=st.lists(weights, min_size=2, max_size=4),
    ends_after=st.none() | st.integers(0, 12),
    refuses=st.frozensets(st.integers(0, 8), max_size=4),
)
def test_haproxy_has_a_server_for_requests_after_each_command(
    sets: Sequence[Weights], ends_after: int | None, refuses: frozenset[int]
) -> None:
    with driven(sets[0]) as haproxy:
        model = haproxy.model
        for number, of in enumerate(sets[1:]):
            is_last = number == len(sets) - 2
            model.changes, model.refuses, model.ends_after = 0, refuses, ends_after
            is_kept = takes_requests(of)
            check = never_without(lambda: model.is_served("/chat")) if is_kept else (lambda: None)
            model.changed = check
            haproxy.publish(chat(of))
            if is_last:
                model.refuses, model.ends_after = frozenset(), None
                for _ in range(3):  # a server that goes is drained, then deleted
                    complaint = haproxy.publish(chat(of))
                assert complaint == ""
        wished = {f"rte-{number}": each for number, each in of.items() if each}
        assert haproxy.taking().keys() == wished.keys()
        assert max(wished.values(), default=0) > 256 or haproxy.taking() == wished
        assert set(model.backends[model.keys["/chat"]]) == {f"rte-{number}" for number in of}


@pytest.mark.parametrize("refused", range(8))
def test_a_service_is_turned_to_another_backend_with_a_server_after_each_command(
    refused: int,
) -> None:
    with driven(BLUE) as haproxy:
        model = haproxy.model
        sticky = chat(GREEN, affinity="X-User")
        model.changed = never_without(lambda: model.is_served("/chat"))
        haproxy.publish(sticky)
        former = model.keys["/chat"]
        assert set(haproxy.taking()) == {"rte-2", "rte-3"}, "by the backend that is there"
        backends = dict(model.backends)
        model.reload()  # both are there, as where somebody else has made the new one
        model.keys["/chat"] = former
        model.backends = backends | model.backends
        model.changes, model.refuses = 0, frozenset({refused})
        haproxy.publish(sticky)
        model.refuses = frozenset()
        for _ in range(3):
            haproxy.publish(sticky)
        assert model.keys["/chat"] != former
        assert set(haproxy.taking()) == {"rte-2", "rte-3"}
        assert model.backends[former] == {}


@pytest.mark.parametrize("ends_after", range(4))
def test_no_key_leads_to_a_backend_that_is_not_in_the_file_after_each_file(
    tmp_path: Path, ends_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, files = haproxy_sink._replace, list[Path]()

    def replacing(path: Path, text: str) -> None:
        if len(files) == ends_after:
            raise OSError(28, "No space left on device")
        replace(path, text)
        files.append(path)
        config = (tmp_path / "muster.cfg").read_text()
        for row in (tmp_path / "muster.map").read_text().splitlines():
            assert f"\nbackend {row.split()[1]}\n" in config

    haproxy = Driven(tmp_path, BLUE)
    before = (tmp_path / "muster.map").read_text()
    monkeypatch.setattr(haproxy_sink, "_replace", replacing)
    haproxy.publish(chat(GREEN, affinity="X-User"))
    assert len(files) == min(ends_after, 3)
    monkeypatch.setattr(haproxy_sink, "_replace", replace)
    haproxy.publish(chat(GREEN, affinity="X-User"))
    assert (tmp_path / "muster.map").read_text() != before
    assert (tmp_path / "muster.cfg").read_text().count("backend ") == 1


def test_replicas_whose_machines_are_not_found_leave_the_requests_to_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    haproxy = Driven(tmp_path, {0: 1})
    moved = Target(route="rte-1", host="new-machine", port=1, revision=2)
    former = chat({0: 0}).targets
    haproxy.publish(service("chat", *former, moved))
    assert haproxy.taking() == {"rte-0": 1}
    assert "rte-0 127.0.0.1:8000 weight 1" in (tmp_path / "muster.cfg").read_text()


def test_a_new_service_does_not_get_the_backend_of_one_that_gave_it_a_host() -> None:
    with driven({0: 1}) as haproxy:
        model = haproxy.model
        one = chat({0: 1})
        other = Target(route="rte-9", host="127.0.0.1", port=9, revision=1)
        model.keys["web.example.org"] = model.keys["/chat"]
        haproxy.sink.publish([one, service("web", other, host="web.example.org", affinity="X")])
        assert haproxy.taking() == {"rte-0": 1}


class EtcdModel(EtcdSink):
    """A sink whose etcd is a dictionary, which takes the parts of a transaction one by one."""

    def __init__(self) -> None:
        given = EtcdSettings.model_validate({"endpoints": ["http://127.0.0.1:1"]})
        super().__init__(given)
        self.keys: dict[str, str] = {}
        self.ends_after: int | None = None
        self.changed: Callable[[], None] = lambda: None
        self.asked = 0

    def is_served(self) -> bool:
        return any(json.loads(each)["weight"] for each in self.keys.values())

    def _ask(self, path: str, request: Mapping[str, Any], type: Any) -> Any:
        match path:
            case "/v3/lease/grant":
                return type(ID=7)
            case "/v3/kv/range":
                rows = [(key.encode(), value.encode(), 7) for key, value in self.keys.items()]
                return type(tuple(etcd_sink._Row(*row) for row in rows))
        assert path == "/v3/kv/txn"
        if self.ends_after is not None and self.asked >= self.ends_after:
            raise SinkError("etcd does not answer")
        self.asked += 1
        for each in request["success"]:
            ((verb, what),) = each.items()
            key = base64.b64decode(what["key"]).decode()
            if verb == "requestPut":
                self.keys[key] = base64.b64decode(what["value"]).decode()
            else:
                del self.keys[key]
            self.changed()
        return type()


@settings(max_examples=200, deadline=None)
@example(sets=[BLUE, GREEN], ends_after=1)
@given(sets=st.lists(weights, min_size=2, max_size=4), ends_after=st.none() | st.integers(0, 4))
def test_etcd_has_a_replica_for_requests_after_each_key(
    sets: Sequence[Weights], ends_after: int | None
) -> None:
    with patch.object(etcd_sink, "BATCH", 2):
        sink = EtcdModel()
        sink.publish([chat(sets[0])])
        for of in sets[1:]:
            sink.asked, sink.ends_after = 0, ends_after
            sink.changed = never_without(sink.is_served) if takes_requests(of) else (lambda: None)
            with suppress(SinkError):
                sink.publish([chat(of)])
        sink.ends_after = None
        sink.publish([chat(of)])
        found = {
            key.rpartition("/")[2]: json.loads(each)["weight"] for key, each in sink.keys.items()
        }
        assert found == {f"rte-{number}": each for number, each in of.items()}


@given(sets=st.lists(weights, min_size=1, max_size=6))
def test_the_proxy_chooses_a_replica_of_each_set_that_has_one(sets: Sequence[Weights]) -> None:
    live = LiveService(chat(sets[0]))
    for of in sets:
        live.update(chat(of), 0.0)
        replica = live.pick(None, (), 0.0)
        chosen = None if replica is None else int(replica.route.removeprefix("rte-"))
        assert (chosen is not None) is takes_requests(of)
        assert chosen is None or of[chosen]
