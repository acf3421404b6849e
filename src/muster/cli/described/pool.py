"""A pool as `muster show` tells it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from muster.cli.described.record import ago, heading, sentences
from muster.cli.described.settings import settings_lines
from muster.cli.screen import fields
from muster.cli.streams import plain
from muster.cli.words import count, duration, moment
from muster.core.resources import format_amount, format_bytes, parse_milli, parse_stored_bytes

if TYPE_CHECKING:
    from muster.core.states.slice import SliceStatus
    from muster.core.views.pools import PoolView


def pool_parts(pool: "PoolView", now: float) -> list[RenderableType]:
    """A pool: what it makes, what it has, and what keeps it from making more."""
    spec = pool.spec
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
                ("settings", plain("\n".join(settings_lines(spec.get("settings") or {})))),
                ("machine", plain(_machine(spec))),
                ("report", plain(shape_of(pool.reported)) if pool.reported else None),
                ("differs", sentences(pool.differs)),
                ("attributes", plain(_attributes(spec.get("attributes") or {}))),
                ("slices", _slices(pool)),
                ("machines", f"{count(pool.machines, 'machine')}, {price(pool.price)} an hour"),
                ("price", f"{price(spec.get('price') or 0.0)} a machine an hour"),
                ("priority", f"{_number(spec, 'priority')} (the lowest is taken first)"),
                ("quota key", plain(spec.get("quota_key") or "")),
                ("may take", _limits(spec)),
                ("idle", _idle(spec.get("idle_timeout"))),
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


def _machine(spec: Mapping[str, Any]) -> str:
    """A machine of the pool."""
    said = shape_of(spec.get("machine") or {})
    return f"{said}, preemptible" if spec.get("preemptible") else said


def _attributes(attributes: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in attributes.items())


def _slices(pool: "PoolView") -> str:
    """The slices that there are, and the numbers that the pool's file gives."""
    spec = pool.spec
    said = [f"{said_of(pool.slices, pool.leaving)} of at most {_number(spec, 'max_slices')}"]
    if spec.get("min_slices"):
        said.append(f"at least {_number(spec, 'min_slices')}")
    if spec.get("buffer_slices"):
        said.append(f"{_number(spec, 'buffer_slices')} kept idle")
    size = count(spec.get("slice_size") or 1, "machine")
    return f"{', '.join(said)}; each of {size}"


def _limits(spec: Mapping[str, Any]) -> str:
    """The longest times that a slice may take until it is ready."""
    limits = ((name, spec.get(f"{name}_timeout")) for name in ("request", "boot", "join"))
    return ", ".join(f"{duration(limit_s)} to {name}" for name, limit_s in limits if limit_s)


def _idle(timeout_s: float | None) -> str | None:
    if timeout_s is None:
        return None
    return f"deleted after {duration(timeout_s)} without work" if timeout_s else "deleted at once"


def _number(spec: Mapping[str, Any], name: str) -> str:
    found = spec.get(name)
    return f"{found:,}" if isinstance(found, int) else "?"


def shape_of(machine: Mapping[str, Any]) -> str:
    """A shape (``MachineShape``): ``4 cpu, 8GiB memory, 2 GPUs NVIDIA H100``."""
    said = [f"{format_amount('cpu', parse_milli(machine.get('cpu', 0)))} cpu"]
    sizes = ((name, parse_stored_bytes(machine.get(name) or 0)) for name in ("memory", "disk"))
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
