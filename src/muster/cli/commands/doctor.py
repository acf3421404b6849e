"""``muster doctor``."""

from typing import TYPE_CHECKING

import click
from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.cluster import Home
from muster.cli.exits import ExitCode
from muster.cli.screen import stdout
from muster.cli.streams import plain

if TYPE_CHECKING:
    from muster.app.doctor import Check

_MARKS = {
    True: Text("✓", style="green"),
    False: Text("✗", style="bold red"),
    None: Text("-", style="dim"),
}


def doctor(
    ctx: click.Context,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Check what Muster needs of this machine, and say how to mend it."""
    from muster.app.doctor import checks

    console = stdout()
    found = []
    for check in checks(home or ctx.obj.home):
        found.append(check)
        if not as_json:  # at once, because some checks take a moment
            console.print(line(check))
    if as_json:
        import json

        rows = [
            {"name": each.name, "ok": each.ok, "detail": each.detail, "remedy": each.remedy}
            for each in found
        ]
        click.echo(json.dumps(rows, indent=2))
    raise click.exceptions.Exit(
        ExitCode.FAILED if any(each.ok is False for each in found) else ExitCode.OK
    )


def line(check: "Check") -> Text:
    said = Text.assemble(_MARKS[check.ok], " ", check.name)
    if check.detail:
        said.append(f": {plain(check.detail)}")
    if check.ok is False and check.remedy:
        said.append(f"\n  {plain(check.remedy)}")
    return said
