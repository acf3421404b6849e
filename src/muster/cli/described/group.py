"""A scaling group as `muster groups show` tells it."""

from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from muster.cli.described.pool import price
from muster.cli.screen import fields
from muster.cli.streams import plain
from muster.cli.words import count, duration

if TYPE_CHECKING:
    from muster.core.views.cluster import GroupView

_TOLD = frozenset({"kind", "name", "preemption", "max_machines", "max_gpus", "max_price", "health"})
"""Fields of a group that have words of their own."""
_TIMES = frozenset(
    {
        "max_timeout",
        "default_timeout",
        "pending_timeout",
        "starvation_after",
        "prepare_timeout",
        "create_timeout",
        "terminate_timeout",
        "retry_backoff",
        "agent_silence",
        "kernel_lease",
        "consolidate_after",
        "consolidate_loss",
        "backlog_window",
    }
)


def group_parts(group: "GroupView") -> list[RenderableType]:
    """A group: what it has, how much of its ceilings is used, and its policy."""
    spec = group.spec
    return [
        Text(plain(group.name), style="bold"),
        fields(
            [
                ("machines", _machines(group)),
                ("GPUs", f"{group.devices:,}, {_part(group.devices_free)} free"),
                ("waiting", count(group.waiting, "session")),
                *(_of_pools(group) if has_ceilings(group) else ()),
                ("preemption", preemption(spec.get("preemption"))),
                ("health", health(spec.get("health"))),
                ("ill", ill(group)),
                *(
                    (name.replace("_", " "), plain(_worded(name, value)))
                    for name, value in spec.items()
                    if name not in _TOLD
                ),
            ]
        ),
    ]


def _machines(group: "GroupView") -> str:
    """How many machines a group has, whoever made them, and in which state."""
    each = [f"{number:,} {status.lower()}" for status, number in sorted(group.statuses.items())]
    told = f" ({', '.join(each)})" if each else ""
    return f"{group.agents:,}{told}"


def _part(number: float) -> str:
    return f"{number:,.1f}".removesuffix(".0")


def _of_pools(group: "GroupView") -> list[tuple[str, str]]:
    """The machines that a group's pools have made or are making, and its ceilings."""
    spec = group.spec
    return [
        ("pools", f"{group.pools:,}"),
        ("their machines", _used(f"{group.machines:,}", _whole(spec.get("max_machines")))),
        ("their GPUs", _used(f"{group.gpus:,}", _whole(spec.get("max_gpus")))),
        ("their price", _used(price(group.price), _price(spec.get("max_price"))) + " an hour"),
    ]


def ceilings(group: "GroupView") -> list[str]:
    """Machines, GPUs and the price an hour of a group's pools, each with its ceiling if it has one:
    ``3/10``."""
    spec = group.spec
    return [
        _of(f"{group.machines:,}", _whole(spec.get("max_machines"))),
        _of(f"{group.gpus:,}", _whole(spec.get("max_gpus"))),
        _of(price(group.price), _price(spec.get("max_price"))),
    ]


def has_ceilings(group: "GroupView") -> bool:
    """Whether there is anything to tell of the machines that the group's pools make."""
    limits = (group.spec.get(name) for name in ("max_machines", "max_gpus", "max_price"))
    return group.pools > 0 or any(limit is not None for limit in limits)


def preemption(spec: dict[str, Any] | None) -> str:
    """The fate of displaced work, and the scope within which work may be displaced; a dash if none
    may."""
    return f"{spec['mode']}, within the {spec['scope']}" if spec else "-"


def health(spec: dict[str, Any] | None) -> str:
    """How machines under suspicion are checked and healed."""
    if spec is None:
        return "no machine is checked or healed unless an operator asks for it"
    checks = ", ".join(spec.get("checks", ())) or "all checks that apply"
    said = [f"{checks} at level {spec.get('level', 2)}"]
    if observed := ", ".join(spec.get("observe", ())):
        said.append(f"{observed} only observed")
    said.append(f"{count(spec.get('rounds', 0), 'round')} of healing at most")
    said.append(f"{spec.get('max_unhealthy', 0.0):.0%} of the machines healed at a time")
    limits = ("leave", "check_timeout", "reset_timeout", "reboot_timeout")
    said += [f"{name} {duration(spec.get(name, 0.0))}" for name in limits]
    if not spec.get("passive", True):
        said.append("errors of drivers and failing jobs raise no suspicion")
    if not spec.get("replace_isolated", True):
        said.append("isolated machines of pools stay")
    return plain(", ".join(said))


def ill(group: "GroupView") -> str | None:
    """How many machines have incidents, and how many of them take no work for that; None where no
    machine has one."""
    if not group.incidents:
        return None
    each = (f"{number:,} {status.lower()}" for status, number in sorted(group.incidents.items()))
    out = f"{group.out:,} out of work, {group.may_be_out:,} may be healed at a time"
    return f"{out} ({', '.join(each)})"


def _worded(name: str, value: Any) -> str:
    """A field's value as a person would write it; empty where it says nothing."""
    if name in _TIMES and isinstance(value, int | float):
        return duration(value) if value else "0s"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {each}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else ""
    return "" if value is None else str(value)


def _of(used: str, limit: str | None) -> str:
    return used if limit is None else f"{used}/{limit}"


def _used(used: str, limit: str | None) -> str:
    return used if limit is None else f"{used} of at most {limit}"


def _whole(limit: int | None) -> str | None:
    return None if limit is None else f"{limit:,}"


def _price(limit: float | None) -> str | None:
    return None if limit is None else price(limit)
