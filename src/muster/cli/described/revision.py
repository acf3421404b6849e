"""Revisions of a deployment as `muster rollout history` tells them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from muster.core.reasons import ReasonCode
from muster.core.resources import format_amount, parse_milli, parse_stored_bytes

if TYPE_CHECKING:
    from muster.core.views.deployments import DeploymentDetail, RevisionView
    from muster.core.views.work import HistoryView

MOST_CHANGES = 8
"""Changes of a revision that are told one by one."""
MOST_COMMAND = 200
MOST_VALUE = 24
"""Characters of a value; where one is longer, the name of its key alone is told."""

GIVEN_UP = {
    ReasonCode.ROLLOUT_STARTS_FAILED: "given up: not healthy",
    ReasonCode.ROLLOUT_TOO_SLOW: "given up: too slow",
    ReasonCode.ROLLOUT_NO_ROOM: "given up: no room",
    ReasonCode.ROLLOUT_ERRORS: "given up: requests failed",
}
"""Words for a revision that was given up, by the reason."""
_SECRET = re.compile(
    r"TOKEN|SECRET|PASS|PWD|PW$|KEY|CREDENTIAL|CERT|AUTH|COOKIE|SALT|SIGN|PRIV|HOOK|DSN|CONN|URL|URI",
    re.IGNORECASE,
)
"""Parts of the names of variables whose values are not told; a URL may hold a password."""


def given_up(found: "DeploymentDetail", history: "Iterable[HistoryView]") -> Mapping[int, str]:
    """Words for the revisions that were given up, by number: the latest one, and those of
    ``history``."""
    reasons = [why for entry in history if entry.entity == found.id for why in entry.reasons]
    if found.reason is not None:
        reasons.append(found.reason)
    return {
        int(str(why.numbers["revision"])): GIVEN_UP[ReasonCode(why.code)]
        for why in reasons
        if why.code in GIVEN_UP and "revision" in why.numbers
    }


def notes(revision: "RevisionView", found: "DeploymentDetail", given_up: Mapping[int, str]) -> str:
    """How a revision stands, and to which it goes back."""
    number, rollout = revision.number, found.rollout
    said = []
    if number == found.stable:
        said.append("serves")
    elif rollout is not None and number == rollout.to_revision:
        said.append("under way" if rollout.paused_at is None else "paused")
    elif number in given_up:
        said.append(given_up[number])
    if revision.of is not None:
        said.append(f"back to {revision.of}")
    return ", ".join(said)


def command_of(template: Mapping[str, Any]) -> str:
    return " ".join(str(part) for part in template.get("command", ()))[:MOST_COMMAND]


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The difference between the templates of two revisions: ``env.VERSION v1→v2``; ``+`` and
    ``-`` are before keys that are new and gone."""
    told = [*_changes(before, after)]
    more = len(told) - MOST_CHANGES
    return ", ".join([*told[:MOST_CHANGES], *([f"and {more} more"] if more > 0 else [])])


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    was, now = dict(_flat(before)), dict(_flat(after))
    order = {key: place for place, key in enumerate(after)}
    for path in sorted({**was, **now}, key=lambda each: order.get(each[0], len(order))):
        if was.get(path) == now.get(path):
            continue
        name = ".".join(path)
        old, new = _value(path, was.get(path)), _value(path, now.get(path))
        if path == ("command",):
            yield f"{name}: {command_of(after)}"
        elif path[0] in ("env", "files") and path not in was:
            yield f"+{name} {new}".rstrip()
        elif path[0] in ("env", "files") and path not in now:
            yield f"-{name}"
        else:
            yield f"{name} {old}→{new}" if old and new else name


def _flat(template: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The keys of a template with their values, those of its parts by themselves."""
    for key, value in template.items():
        if not isinstance(value, Mapping):
            yield (key,), value
            continue
        for inner, its in value.items():
            yield (key, str(inner)), its


def _value(path: Sequence[str], value: Any) -> str:
    """A value as it may be told; empty where its key alone is."""
    if path[0] == "files" or (path[0] == "env" and _SECRET.search(path[-1])):
        return ""
    if value is None or value in ([], {}):
        return "none"
    if path[0] == "resources" and isinstance(value, str | int | float):
        said = _amount(path[-1], value)
    elif isinstance(value, float):
        said = f"{value:g}"
    else:
        said = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return said if said and len(said) <= MOST_VALUE and said.isprintable() else ""


def _amount(resource: str, value: str | float) -> str:
    try:
        in_bytes = resource in ("memory", "disk")
        return format_amount(
            resource, parse_stored_bytes(value) if in_bytes else parse_milli(value)
        )
    except ValueError:
        return str(value)
