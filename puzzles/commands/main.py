"""The command line: assembles the commands, each of which has its own file."""

import sys

import click

from puzzles.custom import add_installed
from puzzles.version import VERSION

from .check import check
from .compare import compare
from .costs import costs
from .doctor import doctor
from .draw import draw
from .export import export
from .grade import grade
from .gradescope import gradescope
from .hint import hint
from .import_ import import_
from .leaderboard import leaderboard
from .list import list_
from .new import new
from .next import next_
from .notebook import notebook
from .path import path
from .plan import plan
from .profile import profile
from .record import record
from .reset import reset
from .run import run
from .share import share
from .shared.group import Commands
from .shared.params import with_own_puzzles
from .show import show
from .solve import solve
from .start import start
from .status import status
from .submit import submit
from .verify import verify
from .watch import watch


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
    "share": (share, verify, submit, record),
    "for a class": (new, check, gradescope, leaderboard, doctor),
    "on a cluster": (profile, solve, plan, export, import_),
}

for command in (*PLAY, hint, status, reset, notebook, *OTHERS["share"], gradescope, leaderboard, export):
    with_own_puzzles(command)
with_own_puzzles(main)
main.add_commands(PLAY, OTHERS)
