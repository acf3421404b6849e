"""Recoveries as the command line tells them."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from proving.hollow.supervisor import Run
from tests.api.served import ADA, LARGE, ServedCluster
from tests.cli.fake_cluster import NOW, because
from tests.cli.rendered import shown

from muster.cli.cluster import Cluster
from muster.cli.described.recovery import recovery_parts
from muster.cli.program import app
from muster.core.reasons import ReasonCode
from muster.core.states.recovery import RecoveryStatus
from muster.core.views.base import OwnerView
from muster.core.views.recoveries import RecoveryDetail, RoundAgentView, RoundView

HEALED = RoundAgentView(
    agent="a1",
    agent_id="agt-1",
    devices=(3,),
    incident="inc-1",
    result="healed",
    heals=1,
    said="GPU 3: fallen off the bus",
)


def a_round(**fields: Any) -> RoundView:
    return RoundView(
        **{
            "number": 1,
            "why": because(ReasonCode.RECOVERY_TASK_FAILED, index=2, how="exit code 1", agents=2),
            "tasks": (2,),
            "attempt": 1,
            "agents": (HEALED, RoundAgentView(agent="a2", agent_id="agt-2", result="healthy")),
            "began_at": NOW - 3600,
            "checked_at": NOW - 3000,
            "healed_at": NOW - 1860,
            "ended_at": NOW - 1800,
            "outcome": because(ReasonCode.RECOVERY_RUNS_AGAIN, after_s=1800.0),
            "gpus": 16.0,
            **fields,
        }
    )


def recovery(**fields: Any) -> RecoveryDetail:
    return RecoveryDetail(
        **{
            "id": "rec-01kaec7mc2qv3x9p",
            "job": "job-01kaec7mc2qv3x9q",
            "name": "train",
            "group": "default",
            "owner": OwnerView(domain="default", project="default", user="ada"),
            "status": RecoveryStatus.IN_PROGRESS,
            "status_changed_at": NOW - 1800,
            "created_at": NOW - 7300,
            "restarts": 1,
            "rounds_begun": 1,
            "gpu_hours_lost": 8.0,
            "ran_s": 3600.0,
            "runs_since": NOW - 1800,
            "started_at": NOW - 7200,
            "rounds": (a_round(),),
            **fields,
        }
    )


def told(found: RecoveryDetail) -> str:
    return "\n".join(shown(recovery_parts(found, NOW)))


def test_recovery_tells_what_failed_what_was_found_and_what_it_cost() -> None:
    said = told(recovery())
    assert said.startswith("train  in progress  rec-01kaec7mc2qv3x9p")
    assert "75.0% of the time since its first start" in said
    assert "8.00 GPU-hours" in said
    assert "task 2 failed (exit code 1): has 2 agents checked on which it ran" in said
    assert "agent a1: healed after 1 heal: GPU 3: fallen off the bus" in said
    assert "agent a2: healthy" in said
    assert "checked for 10m00s, healed for 19m00s, restarted for 1m00s" in said
    assert "its tasks run again, after 30m00s" in said


def test_round_that_is_open_counts_what_it_costs_so_far() -> None:
    open_ = a_round(healed_at=None, ended_at=None, outcome=None)
    said = told(recovery(rounds=(open_,), gpu_hours_lost=0.0))
    assert "16.00 GPU-hours" in said
    assert "checked for 10m00s, healed for 50m00s" in said


def test_rounds_that_are_not_kept_are_counted() -> None:
    assert "the first 4 are not kept" in told(recovery(rounds_begun=5))


@pytest.mark.parametrize(
    ("fields", "ratio"),
    [
        ({"started_at": None}, None),
        ({"runs_since": None}, 0.5),
        ({"finished_at": NOW - 1800.0, "runs_since": None}, 2 / 3),
    ],
)
def test_training_ratio_is_of_the_time_since_the_first_start(
    fields: dict[str, Any], ratio: float | None
) -> None:
    found = recovery(**fields).training_ratio(NOW)
    assert found == (None if ratio is None else pytest.approx(ratio))


def test_recoveries_are_listed_and_stopped_with_their_jobs(tmp_path: Path) -> None:
    cluster = ServedCluster(tmp_path, {"a1": LARGE}, behaviour=lambda start: Run(1e9))
    cluster.start()
    try:
        with cluster.client(ADA) as client:
            job = client.submit(command=["train"], name="train", recovery=True)

        def run(*words: str) -> Result:
            return CliRunner().invoke(
                app, ["recoveries", *words], obj=Cluster(cluster.url, cluster.token())
            )

        listed = run("list")
        assert listed.exit_code == 0, listed.output
        assert "train" in listed.stdout
        assert "in progress" in listed.stdout
        stopped = run("stop", "train")
        assert stopped.stdout.startswith("the recovery of job train (job-"), stopped.output
        (found,) = json.loads(run("list", "--all", "--json").stdout)
        assert (found["status"], found["job"]) == ("USER_STOPPED", job.id)
        again = run("stop", found["id"])
        assert "had ended already: it is user_stopped" in again.stdout
    finally:
        cluster.stop()
