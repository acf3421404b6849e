"""``muster hold`` and ``muster release``."""

from typing import Annotated

from muster.cli.completion import complete_job
from muster.cli.kinds import job
from muster.cli.parameters import Argument
from muster.cli.record_commands import verb_command
from muster.core.verbs.jobs import HOLD_JOB, RELEASE_JOB

Jobs = Annotated[list[str], Argument(metavar="REF...", help="Jobs.", autocompletion=complete_job)]

hold = verb_command(HOLD_JOB, job.KIND, Jobs, suggested="live")
release = verb_command(RELEASE_JOB, job.KIND, Jobs, suggested="live")
