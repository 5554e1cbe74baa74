"""The group of all commands: its help fits a screen, and a wrong name is answered with the nearest one."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import chain
from types import MappingProxyType
from typing import Any

import click

from puzzles.tracks import ALL


def abandon_output() -> None:
    """Lets standard output lead nowhere: what is left in its buffer would fail again at the end of the interpreter."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Commands(click.Group):
    """A group that suggests the nearest command to a wrong one. Its help explains those to `play`, and names the others
    by what they are for, so that it fits a screen."""

    play: Sequence[click.Command] = ()
    others: Mapping[str, Sequence[click.Command]] = MappingProxyType({})

    def main(self, *args: Any, **extra: Any) -> Any:
        """Click's entry. A standard stream that is closed becomes one that leads nowhere: Python has None for it, and
        the next file that is opened would get its number."""
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:
                setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # for the rest of the process
        try:
            return super().main(*args, **extra)
        except OSError as why:
            if why.filename is not None:  # the streams have no names
                raise
            abandon_output()
            click.echo(f"Error: cannot show the results: {why.strerror or why}", err=True)
            sys.exit(2)

    def add_commands(self, play: Sequence[click.Command], others: Mapping[str, Sequence[click.Command]]) -> None:
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
            if name == "torch":
                advice = "type 'puzzles run FILE NAME --on torch', for a pipeline with '--through pipelining'"
            elif name in ALL:
                advice = f"did you mean 'puzzles show {name}'?"
            elif near:
                advice = f"did you mean '{near[0]}'?"
            else:
                advice = f"there are {', '.join(self.commands)}"
            ctx.fail(f"there is no command '{name}'; {advice}")
        return super().resolve_command(ctx, args)
