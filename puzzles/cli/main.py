"""The command line: the group of all commands. Its help fits a screen; a wrong name gets the nearest one.

A command's module is imported when the command is called, so that `puzzles --version` and the commands that only read
the catalog start without the rest. The alternative, all modules at the top, took half of the time of a short command.
"""

import os
import signal
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from puzzles.catalog.fields import OwnPuzzleError
from puzzles.version import VERSION

MODULES = {
    "next": "start", "watch": "watch", "list": "list", "show": "show", "start": "start", "grade": "grade",
    "draw": "draw", "path": "list", "run": "run", "hint": "show", "compare": "draw", "status": "list", "reset": "list",
    "notebook": "start", "costs": "show", "share": "share", "verify": "share", "new": "check", "check": "check",
    "class": "grade", "gradescope": "grade", "doctor": "grade", "profile": "pipelines", "solve": "pipelines",
    "plan": "plan", "layout": "layout", "export": "run", "import": "run",
}  # fmt: skip
"""The module of each command. The function has the command's name, with an underscore where Python has that name."""

PLAY = ("next", "watch", "list", "show", "start", "grade", "draw")
OTHERS = {
    "to play": ("path", "run", "hint", "compare", "status", "reset", "notebook", "costs"),
    "share": ("share", "verify"),
    "for a class": ("class", "new", "check", "gradescope", "doctor"),
    "on a cluster": ("profile", "solve", "plan", "layout", "export", "import"),
}
WITH_OWN_PUZZLES = {*PLAY, "hint", "status", "reset", "notebook", *OTHERS["share"], "gradescope", "export"}
"""Commands that take `--puzzles FOLDER` behind their name too."""
WITHOUT_PUZZLES = {"profile", "solve", "plan", "layout"}
"""Commands that know no puzzle, and load none."""


def add_own(ctx: click.Context, param: click.Parameter, paths: tuple[str, ...]) -> None:
    """Click's callback of --puzzles: adds the folders before other parameters look for puzzles, until the command
    ends."""
    if paths:
        from puzzles.cli.puzzle_params import add_folders

        add_folders(ctx, paths)


def own_puzzles() -> click.Option:
    words = "Add a folder of puzzles; may be repeated."
    how: dict[str, Any] = {"metavar": "FOLDER", "multiple": True, "is_eager": True, "expose_value": False}
    return click.Option(["--puzzles"], callback=add_own, help=words, **how)


class Commands(click.Group):
    """A group that suggests the command nearest to a wrong name. Its help explains the commands in `play` and lists the
    others by purpose, so that it fits a screen."""

    def list_commands(self, ctx: click.Context | None) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: click.Context | None, name: str) -> click.Command | None:
        """The command of this name, whose module is imported now."""
        if name not in MODULES:
            return None
        if name not in self.commands:
            module = import_module(f"puzzles.cli.{MODULES[name]}")
            command: click.Command = getattr(module, name, None) or getattr(module, f"{name}_")
            if name in WITH_OWN_PUZZLES:
                command.params.append(own_puzzles())
            self.add_command(command)
        return self.commands[name]

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
            from puzzles.cli.params import abandon_output

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
            commands = [(name, self.get_command(ctx, name)) for name in PLAY]
            formatter.write_dl([(name, command.get_short_help_str(60)) for name, command in commands if command])
        with formatter.section("More ('puzzles COMMAND -h' explains each)"):
            formatter.write_dl([(purpose, ", ".join(names)) for purpose, names in OTHERS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            from puzzles.tracks import ALL

            near = get_close_matches(name, MODULES, n=1, cutoff=0.5)
            if name == "torch":
                advice = "type 'puzzles run FILE NAME --on torch', for a pipeline with '--through pipelining'"
            elif name in ALL:
                advice = f"did you mean 'puzzles show {name}'?"
            elif near:
                advice = f"did you mean '{near[0]}'?"
            else:
                advice = f"the commands are {', '.join(MODULES)}"
            ctx.fail(f"there is no command '{name}'; {advice}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands,
    params=[own_puzzles()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(VERSION, prog_name="Training Puzzles", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Learn how large models are trained. Begin with 'puzzles next'."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")  # a terminal that cannot write a star must not stop the program
    if ctx.invoked_subcommand in WITHOUT_PUZZLES:
        return
    from puzzles.custom import add_installed

    for problem in add_installed():
        click.echo(f"Warning: {problem}", err=True)
