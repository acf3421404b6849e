"""Groups of commands."""

import click


class CommandGroup(click.Group):
    """A group of commands below `muster`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named; of one that is a command of `muster` itself, as `drain` is,
        the refusal says so."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            root = ctx.find_root()
            if not isinstance(root.command, click.Group) or args[0].startswith("-"):
                raise
            if args[0] not in root.command.list_commands(root):
                raise
            said = f"{error.message.rstrip('.')}; did you mean `muster {args[0]}`?"
            raise click.UsageError(said, ctx) from None


class ListedGroup(CommandGroup):
    """`muster users` is `muster users list`, with the same options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        # Resilient parsing completes words that are being typed: no command is run.
        if not named and not ctx.resilient_parsing:
            args = ["list", *args]
        return super().parse_args(ctx, args)
