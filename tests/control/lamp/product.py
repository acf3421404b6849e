"""Lamps as a part of the product: the files that would be theirs, and the lines elsewhere."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from alembic.script import ScriptDirectory

ROOT = Path(__file__).parents[3]

_MIGRATION = '''"""lamps"""

from alembic import op
from sqlalchemy import MetaData
from tests.control.lamp.entity import lamps

revision = "9999"
down_revision = "{head}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    lamps.create(op.get_bind())
'''
OWN_FILES: Mapping[str, str] = {
    "src/muster/control/lamp/__init__.py": "",
    "src/muster/control/lamp/module.py": "from tests.control.lamp.module import LampModule\n",
    "src/muster/core/specs/lamp.py": "from tests.control.lamp.spec import KIND\n",
    "src/muster/api/resources/lamps.py": "from tests.control.lamp.api import LAMPS\n",
    "src/muster/client/lamps.py": "from tests.control.lamp.client import LampCalls\n",
    "src/muster/cli/kinds/lamp.py": "from tests.control.lamp.cli import KIND\n",
    "src/muster/cli/commands/lamps.py": "from tests.control.lamp.command import lamps\n",
    "src/muster/store/migrations/versions/v9999_lamps.py": _MIGRATION,
    "proving/hollow/performers/lamps.py": "from tests.control.lamp.twin import HollowLighter\n",
    "proving/swarm/parts/lamps.py": "from tests.control.lamp.part import LAMPS\n",
}
"""Files of the entity's own, each of which has here what stands in this folder."""


class Line(NamedTuple):
    """A line that an entity adds to a file that is not its own, behind one that is there."""

    file: str
    behind: str
    line: str


LINES: Sequence[Line] = (
    Line("pyproject.toml", '    "agent | group | notice",', '    "lamp",'),
    Line("src/muster/core/ids.py", '    INCIDENT = "inc"', '    LAMP = "lmp"'),
    Line(
        "src/muster/client/client.py",
        "from muster.client.http import Body, Http",
        "from muster.client.lamps import LampCalls",
    ),
    Line("src/muster/client/client.py", "    HealthCalls,", "    LampCalls,"),
    Line("src/muster/cli/kinds/__init__.py", "    IdKind.SESSION,", "    IdKind.LAMP,"),
    Line(
        "src/muster/cli/commands/__init__.py",
        '    "Services": {',
        '        "lamps": ListedCommand("lamps", "List lamps."),',
    ),
)
"""The lines elsewhere that lamps have."""
FURTHER = {"src/muster/cli/spec_file.py", "src/muster/core/reasons/codes.py"}
"""Files in which an entity has a line whose file is not submitted, and one with reasons of its
own."""


def lay_out(place: Path) -> None:
    """Make a copy of the product, of links, in which lamps are an entity of its own."""
    for folder in ("src/muster", "proving", "scripts", "docs"):
        _link(ROOT / folder, place / folder)
    (place / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    head = ScriptDirectory(str(ROOT / "src/muster/store/migrations")).get_current_head()
    for name, text in OWN_FILES.items():
        file = place / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text.replace("{head}", str(head)))
    for each in LINES:
        _insert(each, place / each.file)


def _link(real: Path, copy: Path) -> None:
    """Link the files of a folder, and the folders of what is compiled, into a folder of its own."""
    for folder, folders, files in os.walk(real):
        here = copy / Path(folder).relative_to(real)
        here.mkdir(parents=True)
        compiled = [each for each in folders if each == "__pycache__"]
        folders[:] = [each for each in folders if each != "__pycache__"]
        for name in (*files, *compiled):
            (here / name).symlink_to(Path(folder, name))


def _insert(line: Line, file: Path) -> None:
    lines = file.read_text().split("\n")
    assert lines.count(line.behind) == 1, f"{line.file} has {line.behind!r} once"
    lines.insert(lines.index(line.behind) + 1, line.line)
    file.unlink()  # it may be a link
    file.write_text("\n".join(lines))
