"""Groups of commands that run their ``list`` command when none is named."""

import click


class ListedGroup(click.Group):
    """`muster users` is `muster users list`, with the same options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        # Resilient parsing completes words that are being typed: no command is run.
        if not named and not ctx.resilient_parsing:
            args = ["list", *args]
        return super().parse_args(ctx, args)
