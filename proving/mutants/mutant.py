"""A deliberate bug as data, and its way into a copy of the package."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import muster

PACKAGE = Path(muster.__file__).parent


@dataclass(frozen=True, slots=True)
class Mutant:
    """A deliberate bug: in ``file`` of the package, ``text`` is replaced.

    ``breaks`` is the promise that is broken then. ``scenario`` names the kept scenario that shows
    the bug for certain; others are left to seeds. ``beyond`` says why no run can show the bug,
    where that is so: it is no bug after all, or it needs what hollow worlds do not have.
    """

    name: str
    file: str
    text: str
    replacement: str
    breaks: str
    scenario: str = ""
    beyond: str = ""

    def mutated(self, package: Path = PACKAGE) -> str:
        """The file's text with the bug.

        Raises:
            ValueError: ``text`` is not in the file exactly once, so nobody knows what to replace.
        """
        source = (package / self.file).read_text()
        if (times := source.count(self.text)) != 1:
            raise ValueError(f"{self.name}: its text is {times} times in {self.file}, not once")
        return source.replace(self.text, self.replacement)


def copy_with(mutant: Mutant | None, into: Path) -> Path:
    """A copy of the package with the bug, in a directory to be put on the path of imports; the
    package itself stays as it is."""
    copy = into / "muster"
    shutil.copytree(PACKAGE, copy)  # with compiled files, which stay valid
    if mutant is not None:
        (copy / mutant.file).write_text(mutant.mutated())
    return into
