"""Groups of commands that list what there is when none of them is named."""

import click


class ListedGroup(click.Group):
    """`muster users` is `muster users list`, with the same options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        # Resilient parsing completes words that are being typed: nothing is run.
        if not named and not ctx.resilient_parsing:
            args = ["list", *args]
        return super().parse_args(ctx, args)
