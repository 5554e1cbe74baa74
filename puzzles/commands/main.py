"""The command line: the group of all commands. Its help fits a screen; a wrong name gets the nearest one."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import chain
from types import MappingProxyType
from typing import Any

import click

from puzzles.custom import OwnPuzzleError, add_installed
from puzzles.tracks import ALL
from puzzles.version import VERSION

from .check import check, new
from .costs import costs
from .doctor import doctor
from .draw import compare, draw
from .export import export, import_
from .grade import grade
from .gradescope import gradescope
from .layout import layout
from .list import list_, path, reset, status
from .notebook import notebook
from .plan import plan
from .profile import profile
from .run import run
from .share import share
from .shared.params import abandon_output, with_own_puzzles
from .show import hint, show
from .solve import solve
from .start import next_, start
from .verify import verify
from .watch import watch


class Commands(click.Group):
    """A group that suggests the command nearest to a wrong name. Its help explains the commands in `play` and lists the
    others by purpose, so that it fits a screen."""

    play: Sequence[click.Command] = ()
    others: Mapping[str, Sequence[click.Command]] = MappingProxyType({})

    def main(self, *args: Any, **extra: Any) -> Any:
        """Click's entry. A closed standard stream is None in Python, and the next file that is opened would get its
        number; so it is opened on the null device."""
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

    def invoke(self, ctx: click.Context) -> Any:
        """Click's step that runs the command. Ctrl-C ends each with one sentence and the exit code that shells use, and
        so does a fault in a puzzle's file."""
        try:
            return super().invoke(ctx)
        except OwnPuzzleError as why:
            raise click.UsageError(str(why)) from None
        except (KeyboardInterrupt, click.Abort) as why:
            if isinstance(why, click.Abort) and not isinstance(why.__context__, KeyboardInterrupt):
                raise  # a question was answered with no
            click.echo("\n" * sys.stderr.isatty() + (str(why) or "Interrupted."), err=True)
            ctx.exit(128 + signal.SIGINT)

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
                advice = f"the commands are {', '.join(self.commands)}"
            ctx.fail(f"there is no command '{name}'; {advice}")
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="Training Puzzles", message="%(prog)s %(version)s")
def main() -> None:
    """Learn how large models are trained. Begin with 'puzzles next'."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")  # a terminal that cannot write a star must not stop the program

    for problem in add_installed():
        click.echo(f"Warning: {problem}", err=True)


PLAY = (next_, watch, list_, show, start, grade, draw)
OTHERS = {
    "to play": (path, run, hint, compare, status, reset, notebook, costs),
    "share": (share, verify),
    "for a class": (new, check, gradescope, doctor),
    "on a cluster": (profile, solve, plan, layout, export, import_),
}

for command in (*PLAY, hint, status, reset, notebook, *OTHERS["share"], gradescope, export):
    with_own_puzzles(command)
with_own_puzzles(main)
main.play, main.others = PLAY, OTHERS
for command in (*PLAY, *chain(*OTHERS.values())):
    main.add_command(command)
