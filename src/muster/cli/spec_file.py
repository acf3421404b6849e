"""Specs from a file or from standard input."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from muster.core.errors import MusterError

if TYPE_CHECKING:
    from muster.core.specs.load import AnySpec

SpecFile = typer.Argument(metavar="FILE", help="YAML or JSON; - is standard input.")


def read_spec(file: str) -> "AnySpec":
    """
    Raises:
        MusterError: the file cannot be read.
        InvalidSpec: it is not a spec; every problem is named.
    """
    from muster.core.specs import load_spec
    from muster.core.specs.load import MAX_SPEC_BYTES

    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_SPEC_BYTES + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(MAX_SPEC_BYTES + 1)
        return load_spec(data.decode())
    except OSError as error:
        raise MusterError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise MusterError(f"cannot read {file}: it is not text in UTF-8") from None
