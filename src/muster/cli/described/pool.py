"""A pool as `muster show` tells it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from muster.cli.described.record import ago, heading, sentences
from muster.cli.screen import fields, plain
from muster.cli.words import count, duration, moment
from muster.core.resources import format_amount, format_bytes, parse_milli

if TYPE_CHECKING:
    from muster.core.states.slice import SliceStatus
    from muster.core.views.pools import PoolView


def pool_parts(pool: "PoolView", now: float) -> list[RenderableType]:
    """A pool: what it makes, what it has, and what keeps it from making more."""
    spec = pool.spec
    slices = f"{said_of(pool.slices, pool.leaving)} of at most {spec.get('max_slices', '?')}"
    finished = f", deleted {ago(pool.finished_at, now)}" if pool.finished_at else ""
    listed = None if pool.listed_at is None else ago(pool.listed_at, now)
    return [
        heading(pool.name, pool.status, pool.id),
        fields(
            [
                ("reason", sentences(pool.reason)),
                ("makes none", sentences(pool.closed) if pool.closed != pool.reason else None),
                ("group", pool.group),
                ("provider", plain(pool.provider)),
                ("machine", plain(shape_of(spec.get("machine") or {}))),
                ("report", plain(shape_of(pool.reported)) if pool.reported else None),
                ("differs", sentences(pool.differs)),
                ("slices", slices),
                ("machines", f"{count(pool.machines, 'machine')}, {price(pool.price)} an hour"),
                ("usually", None if pool.usual_s is None else f"ready in {duration(pool.usual_s)}"),
                ("listed", listed),
                ("list fails", plain(pool.list_error) or None),
                ("unknown", _unknown(pool)),
                ("lost", f"{count(pool.losses, 'slice')} of late" if pool.losses else None),
                ("revision", _revision(pool)),
                ("times", f"made {moment(pool.created_at)}{finished}"),
            ]
        ),
    ]


def shape_of(machine: Mapping[str, Any]) -> str:
    """A shape (``MachineShape``): ``4 cpu, 8GiB memory, 2 GPUs NVIDIA H100``."""
    said = [f"{format_amount('cpu', parse_milli(machine.get('cpu', 0)))} cpu"]
    sizes = ((name, int(machine.get(name) or 0)) for name in ("memory", "disk"))
    said += (f"{format_bytes(size)} {name}" for name, size in sizes if size)
    if gpus := machine.get("gpus"):
        said.append(f"{count(gpus, 'GPU')} {machine.get('gpu_model', '')}".rstrip())
    extra = (machine.get("extra") or {}).items()
    said += (f"{format_amount(name, parse_milli(amount))} {name}" for name, amount in extra)
    return ", ".join(said)


def said_of(slices: "Mapping[SliceStatus, int]", leaving: int) -> str:
    """Numbers of slices: ``3 slices (2 ready, 1 booting; 1 leaving)``."""
    told = ", ".join(f"{number:,} {status.lower()}" for status, number in slices.items())
    if leaving:
        told += f"; {leaving:,} leaving"
    return count(sum(slices.values()), "slice") + (f" ({told})" if told else "")


def price(amount: float) -> str:
    """A price, or what machines cost: in any currency."""
    return f"{amount:,.2f}"


def _unknown(pool: "PoolView") -> str | None:
    if not pool.unknown_machines:
        return None
    return f"{count(pool.unknown_machines, 'machine')} of slices that are not known here"


def _revision(pool: "PoolView") -> str:
    said = str(pool.revision)
    if pool.outdated:
        said += f"; {count(pool.outdated, 'slice')} of former ones"
    if pool.replacing:
        said += f", replaced {pool.replacing:,} at a time"
    return said
