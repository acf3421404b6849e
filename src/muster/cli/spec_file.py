"""Specs from a file or from standard input."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from muster.cli.parameters import Argument
from muster.client.moments import with_absolute_moments
from muster.client.workdir import current_directory, with_absolute_workdirs
from muster.core.errors import MusterError

if TYPE_CHECKING:
    from muster.core.specs.load import AnySpec

SpecFile = Argument(metavar="FILE", help="YAML or JSON; - is standard input.", holds_spec=True)


def directory_of(file: str) -> str:
    """The absolute directory from which a relative ``workdir`` in ``file`` starts: the file's own,
    or the current one for standard input."""
    here = current_directory()
    if file == "-":
        return here
    return str(Path(os.path.normpath(Path(here, file))).parent)


def read_spec(file: str) -> "AnySpec":
    """
    Raises:
        MusterError: the file cannot be read.
        InvalidSpec: the file holds no valid spec. The command names it with each problem, as with
            those that the controller finds.
    """
    from muster.core.specs import load_keys, spec_of
    from muster.core.specs.documents import MAX_SPEC_BYTES

    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_SPEC_BYTES + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(MAX_SPEC_BYTES + 1)
        keys = with_absolute_workdirs(load_keys(data.decode()), directory_of(file))
        return spec_of(with_absolute_moments(keys))
    except OSError as error:
        raise MusterError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise MusterError(f"cannot read {file}: it is not text in UTF-8") from None
