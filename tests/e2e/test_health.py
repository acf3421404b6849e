"""A gang meets a broken GPU: the machine is found, rebooted and checked, and the gang finishes."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from demo.broken_gpu import PlantedGpus
from tests.e2e.cluster import Cluster, agent
from tests.patience import until

from muster.client import Client
from muster.core.states.health import HealthStatus
from muster.core.states.recovery import RecoveryStatus

AGENTS = ("one", "two", "three")
BROKEN = "two"
LIMIT_S = 90.0
GROUP = {
    "kind": "group",
    "name": "default",
    "health": {"checks": ["dcgm"], "leave": 2, "check_timeout": 30, "reboot_timeout": 60},
}


class Rebooter:
    """Reboots machines whose agents ask for it: each of them and all that runs there is killed, and
    begins again with another boot id."""

    def __init__(self, cluster: Cluster, asked: Path) -> None:
        self._cluster = cluster
        self._asked = asked
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rebooter")
        self.rebooted: list[str] = []

    def __enter__(self) -> "Rebooter":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            for wish in self._asked.glob("reboot-*"):
                name = wish.name.removeprefix("reboot-")
                wish.unlink()
                self.rebooted.append(name)
                self._cluster.reboot(name, f"{name} {len(self.rebooted)}")


@pytest.fixture
def planted(tmp_path: Path) -> PlantedGpus:
    return PlantedGpus(tmp_path / "planted")


@pytest.fixture
def cluster(tmp_path: Path, planted: PlantedGpus) -> Iterator[Cluster]:
    asked = tmp_path / "asked"
    asked.mkdir()
    agents = [
        agent(
            name,
            cpu_milli=2000,
            gpus="1xT4",
            boot_id=f"{name} 0",
            reboot_command=f"touch {asked}/reboot-{name}",
        )
        for name in AGENTS
    ]
    cluster = Cluster(tmp_path / "home", agents)
    cluster.environment["PATH"] = planted.path
    try:
        cluster.start(GROUP)
        with Rebooter(cluster, asked):
            yield cluster
    finally:
        cluster.close()


def test_gang_outlives_a_broken_gpu(cluster: Cluster, planted: PlantedGpus) -> None:
    planted.break_gpu(cluster.home.agent_directory(BROKEN))
    with cluster.client() as client:
        job = client.submit(
            name="train",
            command=[str(planted.task)],
            tasks=len(AGENTS),
            coscheduled=True,
            placement={"max_kernels_per_agent": 1},
            resources={"cpu": 1, "gpu": 1},
            recovery=True,
        ).id
        ended = client.wait(job, timeout_s=LIMIT_S)
        assert ended.state == "SUCCEEDED", told_of(client, job)

        tasks = [client.task(job, index) for index in range(len(AGENTS))]
        assert [each.attempt for each in tasks] == [2, 2, 2]
        assert [each.failure_count for each in tasks] == [0, 0, 0], "the machine was to blame"

        (recovery,) = client.recoveries("all")
        assert (recovery.status, recovery.restarts) == (RecoveryStatus.COMPLETE, 1)

        until(lambda: not client.incidents())
        incidents = {each.agent: each for each in client.incidents("ended")}
        assert set(incidents) == set(AGENTS), "all machines of the attempt are checked"
        broken = incidents.pop(BROKEN)
        assert (broken.status, broken.rounds, broken.heal) == (HealthStatus.HEALTHY, 1, "reboot")
        assert [each.result for each in broken.checks] == ["faulty", "healthy"]
        assert "Uncorrectable memory errors" in broken.checks[0].sentence
        assert broken.job == "train"
        for healthy in incidents.values():
            assert (healthy.status, healthy.rounds) == (HealthStatus.HEALTHY, 0)
            assert [each.result for each in healthy.checks] == ["healthy"]
        assert [each.ill for each in client.agents()] == ["", "", ""]


def test_machine_that_an_operator_has_healed_is_rebooted_and_checked(
    cluster: Cluster, planted: PlantedGpus
) -> None:
    with cluster.client() as client:
        asked = client.heal_agent("one", note="just to be sure")
        found = until(
            lambda: next((e for e in client.incidents("ended") if e.id == asked.id), None),
            timeout_s=LIMIT_S,
        )
        assert (found.status, found.heal) == (HealthStatus.HEALTHY, "reboot")
        assert [each.result for each in found.checks] == ["healthy"]
        told = [
            reason.sentence
            for entry in client.incidents.history(asked.id).items
            for reason in entry.reasons
        ]
        assert any("just to be sure" in each for each in told)


def told_of(client: Client, job: str) -> str:
    """The words of the cluster of a job that did not end as it should."""
    entries = client.history(job).items
    return json.dumps(
        [
            (each.entity, each.to_status, [reason.sentence for reason in each.reasons])
            for each in entries
        ],
        indent=1,
    )
