"""Specs from a file or from standard input."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from muster.cli.parameters import Argument
from muster.cli.words import one
from muster.client.moments import with_absolute_moments
from muster.client.points import with_points
from muster.client.workdir import current_directory, with_absolute_workdirs
from muster.core.errors import InvalidSpec, MusterError, Problem

if TYPE_CHECKING:
    from muster.core.specs.amounts import Spec

S = TypeVar("S", bound="Spec")

_SUBMIT = "muster submit"
_COMMANDS = {
    "group": "muster groups apply",
    "quota": "muster quota set",
    "pool": "muster pools apply",
    "deployment": "muster deploy",
}
"""The command that takes a file of a kind; what has none here is work, which is submitted."""

SpecFile = Argument(
    metavar="FILE", help="File in YAML or JSON; - is standard input.", holds_spec=True
)


def directory_of(file: str) -> str:
    """The absolute directory from which a relative ``workdir`` in ``file`` starts: the file's own,
    or the current one for standard input."""
    here = current_directory()
    if file == "-":
        return here
    return str(Path(os.path.normpath(Path(here, file))).parent)


def read_spec(file: str, *models: "type[S]", others: Mapping[str, str] = MappingProxyType({})) -> S:
    """The spec in a file.

    Args:
        models: those that the command takes. One of another kind is refused with the command that
            takes it; one that tells no kind is a job, which has to be meant.
        others: what to do with files of other kinds, by kind, where the command that takes them
            does not do what is wanted.

    Raises:
        MusterError: the file cannot be read.
        InvalidSpec: the file holds no such spec, or no valid one. The command names it with each
            problem, as with those that the controller finds.
    """
    from muster.core.specs import spec_of
    from muster.core.specs.documents import MAX_SPEC_BYTES
    from muster.core.specs.load import kind_of

    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_SPEC_BYTES + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(MAX_SPEC_BYTES + 1)
        keys = _keys(file, data.decode())
    except OSError as error:
        raise MusterError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise MusterError(f"cannot read {file}: it is not text in UTF-8") from None
    _check_kind(file, keys, [kind_of(model) for model in models], others)
    keys = with_absolute_workdirs(keys, directory_of(file))
    # Work of a kind that the command does not name is submitted like a job.
    keys = with_points(keys, directory_of(file))
    return cast(S, spec_of(with_absolute_moments(keys)))


def _keys(file: str, text: str) -> Mapping[Any, Any]:
    """
    Raises:
        MusterError: it is a script.
        InvalidSpec: it cannot be read as a spec.
    """
    from muster.cli.batch_scripts import unread_options
    from muster.core.specs import load_keys

    try:
        return load_keys(text)
    except InvalidSpec:
        if not text.startswith("#!"):
            raise
        mark = unread_options(text)
        unread = "" if mark is None else f"; its lines with {mark} are not read"
        path = shlex.quote(str(Path(directory_of(file), Path(file).name)))
        run = "save it, and run it with `muster run`" if file == "-" else f"`muster run {path}`"
        raise MusterError(f"{file} is a script, not a spec: {run}{unread}") from None


def _check_kind(
    file: str, keys: Mapping[Any, Any], taken: Sequence[str], others: Mapping[str, str]
) -> None:
    """
    Raises:
        InvalidSpec: the kind is another one than those that are ``taken``.
    """
    from muster.core.specs.load import model_of

    kind = keys.get("kind", "job")
    if not isinstance(kind, str) or model_of(kind) is None:
        return  # the kinds are told where the spec is read
    takes = f"this command takes {' or '.join(map(one, taken))}"
    if (said := others.get(_kind_meant(keys) or kind)) is not None:
        raise InvalidSpec([Problem("kind", str(keys.get("kind", "")), f"{takes}: {said}")])
    if kind_meant := _kind_meant(keys):
        expected = (
            f"missing: {one(kind_meant)} has these keys, so write `kind: {kind_meant}` into it and "
            f"use `{_command_of(kind_meant)} {shlex.quote(file)}`"
        )
        raise InvalidSpec([Problem("kind", "", expected)])
    command = _command_of(kind)
    if command == _command_of(taken[0]):
        return
    use = f"{command} {shlex.quote(file)}"
    if "kind" in keys:
        raise InvalidSpec([Problem("kind", kind, f"{takes}: use `{use}`")])
    expected = f"missing: write `kind: {taken[0]}` into it, or hand a job in with `{use}`"
    raise InvalidSpec([Problem("kind", "", expected)])


def _command_of(kind: str) -> str:
    return _COMMANDS.get(kind, _SUBMIT)


def _kind_meant(keys: Mapping[Any, Any]) -> str | None:
    """The only kind but a job that has all of these keys, where none of them is a job's command."""
    from muster.core.specs.load import models

    if "kind" in keys or "command" in keys or not keys:
        return None
    fits = [kind for kind, model in models().items() if keys.keys() <= model.model_fields.keys()]
    return fits[0] if len(fits) == 1 and fits[0] != "job" else None
