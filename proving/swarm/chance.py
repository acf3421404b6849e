"""The random behaviour of kernels. It depends on the seed and the attempt alone, and so is the same
whatever else happens. A scenario may say how the kernels of its work behave, instead."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter

from muster.core.reasons import ReasonCode
from muster.wire.messages import Start
from proving.hollow.supervisor import Run

CHANCE = "CHANCE"
"""The variable in a job's environment that selects the behaviour of its kernels."""
RUN = "RUN"
"""The variable that tells the behaviour, where it is not left to chance."""


@dataclass(frozen=True, slots=True)
class ToldRun(Run):
    """The behaviour of kernels as a scenario has it."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


_TOLD = TypeAdapter(ToldRun)
DEPLOYMENT = "MUSTER_DEPLOYMENT"
"""The variable of replicas, which serve until they are stopped unless they are told otherwise."""
_SERVES_ON = Run(seconds=1e6)


def behaviour(number: int, runs: ToldRun | None = None) -> Mapping[str, str]:
    """The variables that have the kernels of a submission behave by chance, or as ``runs`` says."""
    told = {} if runs is None else {RUN: _TOLD.dump_json(runs).decode()}
    return {CHANCE: str(number), **told}


def attempt_of(start: Start) -> tuple[str, int, int] | None:
    """The job, the task's index and the attempt of a kernel; None for a session of no job."""
    env = {**start.template.env, **start.env}
    if "MUSTER_TASK_INDEX" not in env:
        return None
    return env["MUSTER_JOB_ID"], int(env["MUSTER_TASK_INDEX"]), int(env["MUSTER_ATTEMPT"])


class Chance:
    """The behaviour of kernels; ``is_kind`` has all of them end soon and well."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.is_kind = False

    def __call__(self, start: Start) -> Run:
        env = {**start.template.env, **start.env}
        attempt = attempt_of(start) or ("", env.get("MUSTER_KERNEL_INDEX"), 0)
        rng = random.Random(f"{self._seed} {env.get(CHANCE)} {attempt[1:]} {start.generation}")
        if DEPLOYMENT in env:
            return _TOLD.validate_json(env[RUN]) if RUN in env else _SERVES_ON
        if self.is_kind:
            return Run(seconds=rng.choice([0.1, 0.5, 2.0]))
        if (told := env.get(RUN)) is not None:
            return _TOLD.validate_json(told)
        draw = rng.random()
        if draw < 0.08:
            return Run(create_failure=ReasonCode.WORKDIR_MISSING)
        if draw < 0.12:
            return Run(create_failure=ReasonCode.CREATE_FAILED, fails_at_go=True)
        return Run(
            seconds=rng.choice([0.0, 0.05, 0.2, 1.0, 5.0, 30.0]),
            exit_code=rng.choice([0, 0, 0, 0, 1]),
            creating_s=rng.choice([0, 0, 0, 0.5, 3.0]),
            stubborn=rng.random() < 0.1,
            stopped_exit_code=rng.choice([None, 0, 0, 3]),
            outlives_kill_s=rng.choice([0, 0, 3, 20, 100]),
        )
