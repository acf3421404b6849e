"""A real etcd: keys under a lease, and what becomes of them when etcd or the lease is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.control.deployment.publishing.balancers import (
    Etcd,
    ask,
    coded,
    keys,
    needs_etcd,
    service,
)
from tests.patience import until

from muster.control.deployment.publishing.effects import PublishServices
from muster.control.deployment.publishing.performer import TrafficPublisher
from muster.control.deployment.publishing.settings import EtcdSettings, TrafficSettings
from muster.core.serving.traffic import Service, Target

pytestmark = needs_etcd
ONE = Target(route="rte-1", host="10.0.0.1", port=8000, revision=1)
TWO = Target(route="rte-2", host="fd00::2", port=8000, revision=2, weight=5)


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    made = Etcd(tmp_path)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def performer(etcd: Etcd) -> Iterator[TrafficPublisher]:
    gone = "http://127.0.0.1:9"  # a member that does not answer
    settings = EtcdSettings.model_validate({"endpoints": [gone, etcd.url], "lease": 5})
    made = TrafficPublisher(TrafficSettings(etcd=settings))
    yield made
    made.close()


def publish(performer: TrafficPublisher, version: int, *services: Service) -> None:
    performer.perform([PublishServices(version, services)])


def test_replicas_are_keys_that_change_and_go_and_come_back_after_an_outage(
    etcd: Etcd, performer: TrafficPublisher
) -> None:
    publish(performer, 2, service("chat", ONE, TWO), service("private", ONE, public=False))
    one = {"address": "10.0.0.1:8000", "weight": 1, "revision": 1}
    two = {"address": "[fd00::2]:8000", "weight": 5, "revision": 2}
    both = {"/muster/routes/chat/rte-1": one, "/muster/routes/chat/rte-2": two}
    until(lambda: keys(etcd) == both)
    publish(performer, 1)  # late: it is older
    publish(performer, 3, service("chat", TWO))
    until(lambda: list(keys(etcd)) == ["/muster/routes/chat/rte-2"])
    etcd.kill()
    publish(performer, 4, service("chat", ONE, TWO))
    etcd.start()
    until(lambda: keys(etcd) == both)
    ask(etcd, "kv/put", key=coded("/muster/routes/x/y"), value=coded("{}"))
    ask(etcd, "kv/put", key=coded("/muster/other"), value=coded("1"))
    [lease] = ask(etcd, "lease/leases")["leases"][-1:]
    ask(etcd, "lease/revoke", ID=lease["ID"])  # as if the controller was not heard for long
    until(lambda: keys(etcd) == both | {"/muster/other": 1})


def test_keys_outlast_the_controller_by_their_lease_alone(
    etcd: Etcd, performer: TrafficPublisher
) -> None:
    many = [
        Target(route=f"rte-{number}", host="10.0.0.1", port=8000, revision=1)
        for number in range(250)
    ]
    publish(performer, 1, service("chat", *many))
    until(lambda: len(keys(etcd)) == 250)
    performer.close()
    assert len(keys(etcd)) == 250
    until(lambda: keys(etcd) == {})


def test_lease_that_is_gone_is_made_anew_long_before_it_would_be_renewed(etcd: Etcd) -> None:
    settings = EtcdSettings.model_validate({"endpoints": [etcd.url], "lease": 3600})
    performer = TrafficPublisher(TrafficSettings(etcd=settings))
    try:
        publish(performer, 1, service("chat", ONE))
        until(lambda: len(keys(etcd)) == 1)
        (lease,) = ask(etcd, "lease/leases")["leases"]
        ask(etcd, "lease/revoke", ID=lease["ID"])
        publish(performer, 2, service("chat", ONE, TWO))
        until(lambda: len(keys(etcd)) == 2, timeout_s=15.0)
    finally:
        performer.close()
