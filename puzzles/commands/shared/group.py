"""The group of all commands: its help fits a screen, and a wrong name is answered with the nearest one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import chain
from types import MappingProxyType

import click

from puzzles.tracks import ALL


class Commands(click.Group):
    """A group that suggests the nearest command to a wrong one. Its help explains those to `play`, and names the others
    by what they are for, so that it fits a screen."""

    play: Sequence[click.Command] = ()
    others: Mapping[str, Sequence[click.Command]] = MappingProxyType({})

    def add_commands(self, play: Sequence[click.Command], others: Mapping[str, Sequence[click.Command]]) -> None:
        """Adds commands, in the order of the help."""
        self.play, self.others = play, others
        for command in (*play, *chain(*others.values())):
            self.add_command(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(command.name or "", command.get_short_help_str(60)) for command in self.play])
        with formatter.section("More ('puzzles COMMAND -h' explains each)"):
            formatter.write_dl([(what, ", ".join(str(one.name) for one in them)) for what, them in self.others.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = get_close_matches(name, self.commands, n=1, cutoff=0.5)
            if name in ALL:
                advice = f"did you mean 'puzzles show {name}'?"
            elif near:
                advice = f"did you mean '{near[0]}'?"
            else:
                advice = f"there are {', '.join(self.commands)}"
            ctx.fail(f"there is no command '{name}'; {advice}")
        return super().resolve_command(ctx, args)
