"""The words that people read of a recovery: by `why`, by notices, and in lists."""

import pytest
from pydantic import ValidationError
from sqlalchemy import select
from tests.control.conftest import MakeWorld
from tests.control.recovery.clinic import FAULTY, always_fails, clinic, fails
from tests.control.world import ADA
from tests.databases import ON_BOTH

from muster.control.group.requests import GroupRequests
from muster.control.job.explanation import explain_job
from muster.control.notice.entity import notices
from muster.control.recovery.book import Recoveries
from muster.control.recovery.explanation import explain_recovery, with_recovery
from muster.control.recovery.queries import (
    list_recoveries,
    read_recovery,
    read_recovery_detail,
)
from muster.core.errors import InvalidSpec
from muster.core.specs import JobSpec, RecoverySpec
from muster.core.states import JobState
from muster.core.states.recovery import RecoveryStatus
from muster.store.queries.listing import Listing

pytestmark = ON_BOTH

R = RecoveryStatus


def test_why_names_the_machine_that_is_waited_for(worlds: MakeWorld) -> None:
    here = clinic(worlds, "ab", course=fails((0, 1)), checks={"a": [FAULTY], "b": [FAULTY]})
    job = here.job(name="train")
    recovery = here.recovery(job)
    here.until(recovery, R.PENDING_HEALTHCHECK)
    live, parts, now = here.world.plane.live, here.world.plane.parts, here.world.clock.now()
    of_job = explain_job(live, here.world.cluster, job.id, now)
    told = with_recovery(of_job, parts[Recoveries].of(job), now)
    assert told.reasons[0].code == "RECOVERY_CHECKS"
    assert told.reasons[0].sentence.startswith(
        "task 0 failed: the check of 1 of 1 agent is awaited"
    )
    here.until(recovery, R.PENDING_RESTART)
    machine = here.ran_on[0, 1]
    why = explain_recovery(here.world.plane.live, recovery.name, here.world.clock.now())
    assert why.reasons[0].sentence.startswith(f"waits until agent {machine} is healthy again")
    assert "a planted fault" in why.reasons[0].sentence
    assert why.verdict == "job train waits for a machine to heal, for 0ms"


def test_channels_are_told_once_of_machines_and_what_to_do(worlds: MakeWorld) -> None:
    here = clinic(worlds, "ab", course=always_fails, checks={name: [FAULTY] for name in "ab"})
    job = here.job(
        name="train", recovery={"max_restarts": 0}, notify=["https://hooks.example.org/x"]
    )
    assert here.ended(job) is JobState.FAILED
    with here.world.store.engine.connect() as connection:
        (notice,) = connection.execute(select(notices)).all()
    machine = here.ran_on[0, 1]
    assert notice.title == f"job train: FAILED, {machine} at fault"
    assert f"agent {machine}: faulty" in notice.body
    assert "a planted fault" in notice.body
    assert f"what to do: Look at the machine: `muster agents show {machine}`" in notice.body
    assert "more: muster recoveries show rec-" in notice.body


def test_job_that_fails_for_nothing_covered_is_told_as_ever(worlds: MakeWorld) -> None:
    here = clinic(worlds, course=always_fails)
    job = here.job(
        name="train", recovery={"exit_codes": [9]}, notify=["https://hooks.example.org/x"]
    )
    here.ended(job)
    with here.world.store.engine.connect() as connection:
        (notice,) = connection.execute(select(notices)).all()
    assert notice.title == "job train: FAILED"


def test_recoveries_are_listed_and_shown_with_their_rounds(worlds: MakeWorld) -> None:
    here = clinic(worlds, "ab", course=fails((0, 1)), checks={name: [FAULTY] for name in "ab"})
    job = here.job(name="train")
    recovery = here.recovery(job)
    here.ended(job)
    now = here.world.clock.now()
    with here.world.store.engine.connect() as connection:
        everything = Listing()
        (listed,) = list_recoveries(connection, ADA, everything).items
        shown = read_recovery_detail(connection, ADA, "train")
        assert read_recovery(connection, ADA, recovery.id) == listed
    assert listed.status is R.COMPLETE
    assert listed.name == "train"
    assert listed.restarts == 1
    (round_,) = shown.rounds
    assert round_.agents[0].result == "healed"
    assert round_.outcome is not None
    assert round_.gpu_hours_lost(now) > 0
    ratio = shown.training_ratio(now)
    assert ratio is not None
    assert 0.3 < ratio < 0.9


def test_tasks_know_their_attempt_and_their_checkpoints(worlds: MakeWorld) -> None:
    here = clinic(worlds, "a")
    here.job(recovery={"checkpoint_dir": "/shared/ckpt"})
    here.run(1.0)
    kernel = next(iter(here.world.agent("a").running.values()))
    environment = {**kernel.start.template.env, **kernel.start.env}
    assert environment["MUSTER_CHECKPOINT_DIR"] == "/shared/ckpt"
    assert environment["MUSTER_ATTEMPT"] == "1"


def test_checkpoints_outside_the_workspaces_are_refused(worlds: MakeWorld) -> None:
    here = clinic(worlds, "a")
    group = here.world.plane.live.groups["default"].model_copy(update={"workspaces": ("/work",)})
    here.world.ask(lambda work, parts: parts[GroupRequests].put_group(work, group))
    here.job(recovery={"checkpoint_dir": "/work/ckpt"})
    with pytest.raises(InvalidSpec, match="checkpoint_dir"):
        here.job(recovery={"checkpoint_dir": "/elsewhere"})


@pytest.mark.parametrize("written", [{"checkpoint_dir": "ckpt"}, {"checkpoint_dir": "/a/../b"}])
def test_checkpoints_are_in_an_absolute_directory(written: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="expected an absolute path"):
        RecoverySpec.model_validate(written)


@pytest.mark.parametrize(
    ("spec", "exit_code", "signal", "covered"),
    [
        (RecoverySpec(), 1, None, True),
        (RecoverySpec(), 0, None, False),
        (RecoverySpec(), None, 9, True),
        (RecoverySpec(), None, None, False),
        (RecoverySpec(exit_codes=(7,)), 7, None, True),
        (RecoverySpec(exit_codes=(7,)), 1, None, False),
        (RecoverySpec(exit_codes=(135,)), None, 7, True),
        (RecoverySpec(exit_codes=(135,)), None, 9, False),
    ],
)
def test_exit_codes_and_signals_are_covered(
    spec: RecoverySpec, exit_code: int | None, signal: int | None, covered: bool
) -> None:
    assert spec.covers(exit_code, signal) is covered


def test_recovery_is_written_as_true_false_or_fields() -> None:
    job = {"command": ["x"]}
    assert JobSpec.model_validate({**job, "recovery": True}).recovery == RecoverySpec()
    assert JobSpec.model_validate({**job, "recovery": False}).recovery is None
    one = JobSpec.model_validate({**job, "recovery": {"exit_codes": 7, "check_timeout": "5m"}})
    assert one.recovery == RecoverySpec(exit_codes=(7,), check_timeout=300.0)
    assert JobSpec.model_validate_json(one.model_dump_json(exclude_defaults=True)) == one
    for wrong in ("yes", 1, {"exit_codes": [0]}, {"exit_codes": [256]}, {"max_restarts": -1}):
        with pytest.raises(ValidationError):
            JobSpec.model_validate({**job, "recovery": wrong})


def test_what_is_no_recovery_is_told_what_is_one() -> None:
    with pytest.raises(ValidationError, match="expected true, false, or fields such as"):
        JobSpec.model_validate({"command": ["x"], "recovery": "maybe"})
