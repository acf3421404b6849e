"""Sessions of as many kernels as a spec may say, each of which asks for nothing."""

import math
import time
from pathlib import Path

from tests.attacks.pace import times_slower
from tests.attacks.target import Target, assert_p99
from tests.e2e.cluster import Cluster, agent, started
from tests.patience import until

from muster.client import Client
from muster.core.states import JobState, SessionStatus

LARGEST = 10_000
FITS = 100
ENOUGH = 100
"""Submissions of the bystander, of which one may be slow."""


def gang(kernels: int) -> dict[str, object]:
    kernel = {"command": ["true"], "replicas": kernels, "resources": {"cpu": 0}}
    return {"kind": "session", "kernels": [kernel]}


def test_gang_of_ten_thousand_kernels_delays_nobody_else(target: Target) -> None:
    with target.client("mallory") as mallory:
        waits = mallory.submit(gang(LARGEST))
        assert [each.code for each in mallory.why(waits.id).reasons] == ["GANG_NEVER_FITS"]
        mallory.cancel(waits.id)


def test_gangs_of_ten_thousand_kernels_without_a_pause_delay_nobody_else(target: Target) -> None:
    before = len(target.probes())
    with target.client("mallory") as mallory:
        while len(target.probes()) < before + ENOUGH:
            mallory.cancel(mallory.submit(gang(LARGEST)).id)
    target.assert_served(before)


def test_gang_that_fits_runs_and_delays_nobody_else(target: Target) -> None:
    with target.client("mallory") as mallory:
        runs = mallory.submit(gang(FITS))
        until(lambda: mallory.session(runs.id).status == SessionStatus.TERMINATED)


def test_controller_with_a_gang_of_ten_thousand_kernels_starts_again_and_serves(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path / "home", [agent("one", cpu_milli=4_000, gpus="none")])
    with started(cluster):
        mallory, ada = (cluster.add_user(name) for name in ("mallory", "ada"))
        with cluster.client(mallory) as client:
            waits = client.submit(gang(LARGEST))
        cluster.kill_controller()
        cluster.start_controller()
        cluster.running()
        with cluster.client(ada) as client:
            took_s = sorted(_took_s(client) for _ in range(100))
        assert_p99(took_s[math.ceil(len(took_s) * 0.99) - 1], len(took_s))
        with cluster.client(mallory) as client:
            assert client.session(waits.id).status == SessionStatus.PENDING
            client.cancel(waits.id)


def _took_s(client: Client) -> float:
    """How long it takes to hand in a job, on a machine of usual speed."""
    slower, began_s = times_slower(), time.monotonic()
    job = client.submit(command=["true"])
    took_s = (time.monotonic() - began_s) / max(slower, times_slower())
    until(lambda: client.job(job.id).state == JobState.SUCCEEDED)
    return took_s
