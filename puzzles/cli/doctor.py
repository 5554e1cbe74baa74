"""`puzzles doctor`: reports how this machine can isolate other people's code."""

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from shutil import get_terminal_size

import click

from lib.errors import install_command
from lib.ledger.algebra import counted
from puzzles.sandbox.client import can_fork, protection
from puzzles.text_lines import wrapped

MARGIN = 13
"""Characters of a line before its finding."""


@click.command()
def doctor() -> None:
    """Show how submissions are sandboxed on this machine, and what is missing."""
    room = max(get_terminal_size().columns - MARGIN, MARGIN)
    for heading, finding in findings():
        for number, line in enumerate(wrapped(finding, room).splitlines()):
            click.echo(f"{'' if number else heading:<{MARGIN}}{line}")


def findings() -> Iterator[tuple[str, str]]:
    """Headings and findings; the heading is empty where it repeats."""
    import platform

    from puzzles.judge.batch import cores

    python = f"Python {platform.python_version()}"
    yield "system", f"{platform.system()} {platform.release()}, {python}, {counted(cores(), 'core')}"
    here = protection()
    yield "Landlock", f"version {here.landlock} of the kernel's interface" if here.landlock else "not on this system"
    yield "seccomp", "a filter denies system calls that no solution needs" if here.seccomp else "not on this system"
    yield "user", _user()
    yield from _rows("a run cannot", here.protections())
    yield from _rows("a run can", here.limitations())
    yield "limits", _limits()
    yield "leftovers", _leftovers()
    if not here.guards_files:
        yield "folders", "other people's code is graded only with --trust; your own in the current folder without"
    if platform.system() == "Windows":
        yield "Windows", "to grade other people's code, use WSL 2 (wsl --install), where all of this works as on Linux"
    yield "--on mpi", "installed" if find_spec("mpi4py") else f"not installed; {install_command('mpi')}"


def _rows(heading: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines):
        yield "" if number else heading, line


def _user() -> str:
    if not hasattr(os, "getuid"):
        return "runs have your own user id"
    if os.getuid() == 0:
        return "you are root; runs get a user id that owns nothing"
    return f"runs have your own user id, {os.getuid()}"


def _limits() -> str:
    if not can_fork():
        return "time and output; not memory, files or processes on this system"
    if sys.platform == "linux":
        return "time, memory, output, files, processes"
    return "time, output and files; not memory or processes on this system"


def _leftovers() -> str:
    if not can_fork():
        return "a run's processes are ended if they are still its children"
    if sys.platform == "linux":
        return "a run's processes are found and ended, even outside its process group; its folder is removed"
    return "a run's processes are ended if they stay in its process group; its folder is removed"
