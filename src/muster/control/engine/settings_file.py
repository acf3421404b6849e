"""Operators' settings in files of the controller's data directory."""

from pathlib import Path
from typing import TypeVar

from muster.core.errors import InvalidSpec, Problem
from muster.core.specs.amounts import Spec
from muster.core.specs.documents import load_keys
from muster.core.specs.load import parse_spec

S = TypeVar("S", bound=Spec)


def load_settings_file(model: type[S], path: Path) -> S:
    """An operator's settings; the defaults where there is no file.

    Raises:
        InvalidSpec: the file cannot be read, or is wrong; each problem names it.
    """
    try:
        return parse_spec(model, load_keys(path.read_text()))
    except FileNotFoundError:
        return model()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpec([Problem(path.name, "", f"it cannot be read: {error}")]) from None
    except InvalidSpec as error:
        raise error.in_file(path.name) from None
