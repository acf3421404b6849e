"""The clock is ahead on the machine where the controller starts again: nothing ends by that."""

from pathlib import Path

import pytest
from tests.e2e.cluster import Cluster, agent, started
from tests.patience import until

from muster.app.doctor import checks
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, AgentBar, JobState

AHEAD_S = 7200.0
_CLOCK = f"""
import time
real = time.time
time.time = lambda: real() + {AHEAD_S}
"""
_MACHINE = """
import pathlib
read = pathlib.Path.read_text
ids = {"/proc/sys/kernel/random/boot_id", "/etc/machine-id"}
def read_text(path, *args, **options):
    return "another" if str(path) in ids else read(path, *args, **options)
pathlib.Path.read_text = read_text
"""


@pytest.mark.parametrize("site", [_CLOCK, _CLOCK + _MACHINE], ids=["same boot", "other machine"])
def test_work_has_all_its_time_though_the_clock_is_ahead_when_the_controller_starts_again(
    tmp_path: Path, site: str
) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(site)
    with started(Cluster(tmp_path / "home", [agent("a")])) as cluster:
        with cluster.client() as client:
            spec = {"command": ["sleep", "6"], "timeout": 900, "scheduling_timeout": 1800}
            job = client.submit(JobSpec.model_validate(spec))
            until(lambda: client.job(job.id).status is JobState.RUNNING)
            client.bar_agent("a", AgentBar.DRAINING, deadline=600)
            before = client.cluster().now
        cluster.kill_controller()
        cluster.environment["PYTHONPATH"] = str(folder)
        cluster.start_controller()
        cluster.running()
        with cluster.client() as client:
            told = client.cluster()
            until(lambda: client.job(job.id).status in JOB_TABLE.terminal)
            ended = client.job(job.id)
        found = [check for check in checks(cluster.home.path) if check.name == "clock"]

    assert before < told.now < before + 120
    assert told.clock_leap_s == pytest.approx(AHEAD_S, abs=1)
    assert told.clock_confirmed
    assert ended.status is JobState.SUCCEEDED
    (clock,) = found
    assert clock.ok is False
    assert clock.detail.startswith("the time of day is 2h00m ahead of the cluster's time")
    assert "the time of day is 2h00m ahead" in cluster.home.log.read_text()
