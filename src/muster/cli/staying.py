"""Options of commands that hand work in, and wait for its end only if told to."""

from dataclasses import dataclass
from typing import Annotated

from muster.cli.arguments import AsJson
from muster.cli.hand_in import Display
from muster.cli.parameters import Option


@dataclass(frozen=True, slots=True)
class Staying:
    """Whether a command waits until the work has ended, and how much it tells."""

    wait: Annotated[
        bool, Option("--wait", help="Wait until it has ended; end with its exit code.")
    ] = False
    quiet: Annotated[
        bool, Option("--quiet", "-q", help="Print the id alone; no progress with --wait.")
    ] = False
    as_json: AsJson = False

    def display(self) -> Display:
        return Display(detach=not self.wait, quiet=self.quiet, as_json=self.as_json)
