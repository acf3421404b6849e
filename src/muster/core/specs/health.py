"""The health of a scaling group's machines as operators write it: how they are checked and
healed."""

from typing import Annotated

from pydantic import Field

from muster.core.specs.amounts import Duration, Flag, Name, PositiveDuration, Spec, Whole

MAX_NAMES = 64


class HealthSpec(Spec):
    """How machines under suspicion are checked and healed.

    Args:
        checks: the names of the checks; empty takes all that apply to a machine.
        observe: checks whose faults count as warnings only.
        level: of the checks, from 1 (seconds) to 4 (hours).
        check_timeout: the longest that all checks of a machine may take together.
        unknowns: checks in a row that may find out nothing, before the machine counts as faulty.
        rounds: as often a machine is healed and checked again before an operator has to look.
        leave: the time that work has to end by itself on a machine that is to be checked or healed.
        reset_timeout: the longest that the reset of its devices may take.
        reboot_timeout: the longest that a reboot may take until another boot has joined; so long a
            silent machine is waited for, too.
        max_unhealthy: the part of the group's machines that may be emptied, checked and healed at a
            time; one at least. Isolated machines are not among them; as many again may be checked
            where that displaces nobody.
        passive: whether errors that a driver reports, and jobs that fail one after the other on a
            machine, put it under suspicion.
        replace_isolated: whether a pool's machine that cannot be healed is replaced, with its
            slice.
    """

    checks: Annotated[tuple[Name, ...], Field(max_length=MAX_NAMES)] = ()
    observe: Annotated[tuple[Name, ...], Field(max_length=MAX_NAMES)] = ()
    level: Annotated[Whole, Field(ge=1, le=4)] = 2
    check_timeout: Annotated[PositiveDuration, Field(le=86_400)] = 900.0
    unknowns: Annotated[Whole, Field(ge=1, le=100)] = 3
    rounds: Annotated[Whole, Field(ge=0, le=100)] = 3
    leave: Annotated[Duration, Field(le=604_800)] = 120.0
    reset_timeout: Annotated[PositiveDuration, Field(le=86_400)] = 120.0
    reboot_timeout: Annotated[PositiveDuration, Field(le=86_400)] = 1200.0
    max_unhealthy: Annotated[float, Field(ge=0, le=1)] = 0.2
    passive: Flag = True
    replace_isolated: Flag = True
