"""The sentences of the answers of `muster why` about pools and slices, formed as those of work in
``core.sentences``."""

from collections.abc import Sequence

from muster.core.sentences import first_of, word
from muster.core.text import count, duration


def pool(name: str, slices: int, max_slices: int, *, coming: int, leaving: int, makes: bool) -> str:
    """A pool that exists.

    Args:
        slices: all of them, of which so many are ``coming`` and ``leaving``.
        makes: whether it may make more now.
    """
    said = f"pool {name} has {slices:,} of at most {count(max_slices, 'slice')}"
    parts = [f"{number:,} {how}" for number, how in ((coming, "coming"), (leaving, "leaving"))]
    told = ", ".join(part for part in parts if not part.startswith("0 "))
    said += f" ({told})" if told else ""
    return f"{said}; it makes more when demand wants them" if makes else f"{said}; it makes no more"


def pool_deleted(name: str) -> str:
    return f"pool {name} was deleted"


def machines_listed(ago_s: float) -> str:
    return f"its provider listed its machines {duration(ago_s)} ago"


def unknown_machines(machines: int, slice_: str, for_s: float) -> str:
    """Machines of a pool that belong to no slice."""
    return f"{count(machines, 'machine')} of slice {slice_}, unknown here for {duration(for_s)}"


def replaces(at_a_time: int, revision: int) -> str:
    return f"slices of revisions before {revision} are replaced, {at_a_time:,} at a time"


def slice_coming(pool: str, status: str, for_s: float, age_s: float, usual_s: float | None) -> str:
    """A slice that is not READY yet.

    Args:
        for_s: how long it has had its status, and ``age_s`` how long ago it was asked for.
        usual_s: how long slices of its pool took of late; None where that is not known.
    """
    said = f"a slice of pool {pool}, {word(status)} for {duration(for_s)}"
    if age_s - for_s >= 1.0:
        said += f", {duration(age_s)} after it was asked for"
    return said if usual_s is None else f"{said}; they usually take {duration(usual_s)}"


def slice_ready(pool: str, for_s: float, kernels: int) -> str:
    work = f"runs {count(kernels, 'kernel')}" if kernels else "runs nothing"
    return f"a slice of pool {pool}, ready for {duration(for_s)}; it {work}"


def slice_leaving(pool: str, status: str, for_s: float) -> str:
    """A slice that is to be deleted, since ``for_s``."""
    return f"a slice of pool {pool}, {word(status)}, being deleted for {duration(for_s)}"


def slice_ended(pool: str, lived_s: float, *, was_ready: bool, failed: bool) -> str:
    said = f"a slice of pool {pool}; its machines are gone after {duration(lived_s)}"
    if failed:
        return f"{said}: it went wrong"
    return said if was_ready else f"{said}, and it was never ready"


def kernels_leave(kernels: int, in_s: float) -> str:
    """The work that has to leave a slice before it is deleted.

    Args:
        in_s: infinite where it may run to its end.
    """
    work = f"{count(kernels, 'kernel')} still {'runs' if kernels == 1 else 'run'} there"
    if in_s == float("inf"):
        return f"{work}, and may do so to the end"
    return f"{work}, and may for {duration(in_s)}" if in_s > 0 else f"{work}, told to leave"


def provider_makes(provider: str, for_s: float) -> str:
    return f"provider {provider} was asked to make it {duration(for_s)} ago"


def provider_deletes(provider: str, for_s: float) -> str:
    return f"provider {provider} was asked to delete its machines {duration(for_s)} ago"


def machines_join(joined: int, missing: Sequence[str]) -> str:
    """How many machines of a slice are there, and which are not."""
    if not missing:
        return f"all {count(joined, 'machine')} are there" if joined > 1 else "its machine is there"
    return f"{joined:,} of {count(joined + len(missing), 'machine')} joined; missing: " + first_of(
        missing
    )


def given_up(in_s: float) -> str:
    return f"it is given up in {duration(in_s)}" if in_s > 0 else "it is about to be given up"
