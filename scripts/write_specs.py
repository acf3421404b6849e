"""Writes docs/specs.md from the models of what people write: `python scripts/write_specs.py`."""

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from muster.core.specs import (
    amounts,
    deployment,
    group,
    health,
    job,
    matrix,
    notify,
    placement,
    pool,
    quota,
    recovery,
    serving,
    session,
)
from muster.core.specs.load import models
from muster.core.task_ranges import TaskRanges

PAGE = Path(__file__).parent.parent / "docs" / "specs.md"
_TITLED: tuple[tuple[str, type[amounts.Spec]], ...] = (
    ("A job (`kind: job`)", job.JobSpec),
    ("A session (`kind: session`)", session.SessionSpec),
    ("Kernels of a session", session.KernelSpec),
    ("Resources", amounts.ResourcesSpec),
    ("Placement", placement.PlacementSpec),
    ("Constraints", placement.Constraint),
    ("Dependencies", placement.Dependency),
    ("Parameters of tasks (`matrix`)", matrix.Matrix),
    ("Channels", notify.Channel),
    ("Recovery", recovery.RecoverySpec),
    ("A scaling group (`kind: group`)", group.ScalingGroup),
    ("Preemption", group.PreemptionSpec),
    ("Health of machines", health.HealthSpec),
    ("A pool (`kind: pool`)", pool.PoolSpec),
    ("Machines of a pool", pool.MachineShape),
    ("A deployment (`kind: deployment`)", deployment.DeploymentSpec),
    ("Probes of a deployment", serving.ProbeSpec),
    ("Updates of a deployment", serving.UpdateSpec),
    ("Steps of a canary", serving.CanaryStep),
    ("Load of a deployment", serving.ScaleSpec),
    ("Access to a deployment", serving.AccessSpec),
    ("A quota (`kind: quota`)", quota.QuotaSpec),
    ("Limits", quota.QuotaLimits),
)
_OTHERS = {kind: each for kind, each in models().items() if each not in dict(_TITLED).values()}
SECTIONS = (*_TITLED, *((f"A {kind} (`kind: {kind}`)", each) for kind, each in _OTHERS.items()))
"""Models with their titles: those in an order of their own, and then further kinds of files."""
_TITLE = {model: title for title, model in SECTIONS}
_READ_BY = {
    "_affinity": "text: `X-Session`; or `{cookie: NAME}`",
    "parse_duration": "duration: `90`, `90s`, `1h30m`",
    "parse_moment": "moment: `2027-01-31T08:00:00+01:00`; to the client also `+5m`, `08:00`, "
    "`tomorrow 08:00`",
    "parse_milli": "number: `4`, `0.5`, `500m`",
    "parse_gpu": "number: `2`, or a fraction of one: `0.5`",
    "_size": "size: `16GiB`",
    "_maybe_size": "size: `16GiB`",
    "_command": "text or list of text",
    "_models": "text: `H100`, `H100 SXM\\|B200`",
    "_recovery": "`true`, or keys: [recovery](#recovery)",
    "_share": "number, or share: `25%`",
    "_statuses": "status, range or list of them: `200-399`",
    "_access": "`owner`, `public`, or keys: [access](#access-to-a-deployment)",
    "_host": "text: `chat.example.org`",
    "_successes": "number, or `first_success`",
    "_point": "parameters with values",
    "_header": "text: `X-Session`",
    "_extra": "names with amounts: `{licence: 1}`",
}
"""How values are written that a function of ``core.specs`` reads."""
_ARGUMENT = re.compile(r"^ {8}(\w[\w, ]*): ", re.MULTILINE)


def page() -> str:
    """The whole page.

    Raises:
        LookupError: a key of a spec has no meaning in any docstring.
    """
    parts = [
        "# Every key of every spec",
        "",
        "Written from the models in `src/muster/core/specs/` by `scripts/write_specs.py`; a test "
        "keeps",
        "this page equal to them. How to write a first spec: [first-job.md](first-job.md).",
    ]
    for title, model in SECTIONS:
        parts += ["", f"## {title}", "", _about(model), ""]
        parts += ["| key | written as | default | meaning |", "|---|---|---|---|"]
        parts += _rows(model)
    return "\n".join(parts) + "\n"


def _about(model: type[amounts.Spec]) -> str:
    about = inspect.getdoc(model) or ""
    return _marked(" ".join(about.partition("\n\nArgs:")[0].split()))


def _rows(model: type[amounts.Spec]) -> Iterator[str]:
    meanings = _meanings(model)
    hints = get_type_hints(model, include_extras=True)
    for name, field in model.model_fields.items():
        if name == "kind" and get_origin(hints[name]) is Literal:
            continue
        written = _written(hints[name])
        bounds = _bounds(field)
        shown = f"{written}, {bounds}" if bounds else written
        yield f"| `{name}` | {shown} | {_default(field)} | {meanings[name]} |"


def _meanings(model: type[amounts.Spec]) -> dict[str, str]:
    """The meaning of each key, from the docstrings of the model and its bases."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        _, _, arguments = (each.__doc__ or "").partition("Args:\n")
        pieces = _ARGUMENT.split(arguments)[1:]
        for names, meaning in zip(pieces[::2], pieces[1::2], strict=True):
            said = _marked(" ".join(meaning.split()).rstrip(".")).replace("|", "\\|")
            found |= {name.strip(): said for name in names.split(",")}
    return found


def _written(hint: Any) -> str:
    """How a value of this type is written."""
    if get_origin(hint) is Annotated:
        base, *metadata = get_args(hint)
        for each in metadata:
            if isinstance(each, BeforeValidator) and (said := _READ_BY.get(_reader(each))):
                return said
        return _written(base)
    if get_origin(hint) in (Union, UnionType):
        (given,) = (each for each in get_args(hint) if each is not NoneType)
        return _written(given)
    if get_origin(hint) is Literal:
        return " or ".join(f"`{each}`" for each in get_args(hint))
    if get_origin(hint) in (list, tuple):
        return f"list of: {_written(get_args(hint)[0])}"
    if get_origin(hint) is dict:
        key, value = get_args(hint)
        return f"keys ({_written(key)}) with values ({_written(value)})"
    return _plainly(hint)


def _reader(validator: BeforeValidator) -> str:
    """The name of the function that reads the value; of what may be left out it is inside another
    one."""
    read = inspect.getclosurevars(validator.func).nonlocals.get("read", validator.func)
    return str(getattr(read, "__name__", ""))


def _plainly(hint: Any) -> str:
    if hint in _TITLE:
        title = _TITLE[hint]
        anchor = re.sub(r"[^a-z -]", "", title.lower()).replace(" ", "-")
        return f"keys: [{title.partition(' (')[0].lower()}](#{anchor})"
    if hint is TaskRanges:
        return 'text: `"3,17,40-45"`, `"0-100:25"`'
    if isinstance(hint, type) and issubclass(hint, Enum):
        return ", ".join(f"`{each.value}`" for each in hint)
    words = {int: "whole number", float: "number", bool: "`true` or `false`", str: "text"}
    return words.get(hint, "anything")


def _bounds(field: FieldInfo) -> str:
    """As in "1 to 100"."""
    least = next((each.ge for each in field.metadata if isinstance(each, Ge)), None)
    most = next((each.le for each in field.metadata if isinstance(each, Le)), None)
    above = next((each.gt for each in field.metadata if isinstance(each, Gt)), None)
    if least is not None and most is not None:
        if most == 2**40:  # a moment: seconds since the epoch
            return ""
        return f"{least:,} to {most:,}"
    if most is not None:
        return f"at most {most:,}"
    return "more than 0" if above == 0 else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value: Any = field.get_default(call_default_factory=True)
    if value is None or value in ((), {}, [], "") or isinstance(value, amounts.Spec):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value)
    return f"`{value:g}`" if isinstance(value, int | float) else f"`{value}`"


def _marked(text: str) -> str:
    return text.replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(page())
