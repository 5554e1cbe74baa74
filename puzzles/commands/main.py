"""The command line: assembles the commands, each of which has a file of its own."""

from __future__ import annotations

import sys

import click

from puzzles.version import VERSION

from .costs import costs
from .doctor import doctor
from .draw import draw
from .grade import grade
from .hint import hint
from .list import list_
from .notebook import notebook
from .params import Commands
from .plan import plan
from .reset import reset
from .run import run
from .show import show
from .start import start
from .status import status
from .verify import verify
from .watch import watch


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="Training Puzzles", message="%(prog)s %(version)s")
def main() -> None:
    """Learn how large models are trained. Begin with 'puzzles list'."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")  # a terminal that cannot write a star must not stop the program


COMMANDS = (list_, show, start, hint, draw, run, grade, watch, status, reset, verify, costs, plan, doctor, notebook)

for command in COMMANDS:
    main.add_command(command)
