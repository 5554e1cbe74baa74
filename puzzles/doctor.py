"""`puzzles doctor`: what this machine offers for running other people's code."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import click

from .inside import landlock
from .sandbox import UnknownTier, best


@click.command()
def doctor() -> None:
    """Tell how submissions are shut in on this machine, and what is missing."""
    for what, told in findings():
        click.echo(f"{what:<12} {told}")


def findings() -> Iterator[tuple[str, str]]:
    """What was looked at, and what was found."""
    from .course import cores

    yield "system", f"{platform.system()} {platform.release()}, Python {platform.python_version()}, {cores()} cores"
    try:
        tier = best()
    except UnknownTier as why:
        yield "sandbox", f"nothing can be graded here: {why}"
        return
    if tier.is_sandbox:
        yield "sandbox", "bubblewrap works: no network, no other processes, a read-only system, a folder of its own"
    else:
        yield "sandbox", f"none: {tier.why_not}"
        if landlock.version():
            yield "", "but the kernel's Landlock keeps runs from files that are not theirs, and from writing elsewhere;"
        else:
            yield "", "submissions run as processes of their own, which can read and change what their user can;"
        yield "", "a folder of other people's code is graded only with --trust"
    yield "user", _user()
    yield "limits", _limits()
    yield "leftovers", _leftovers(tier.is_sandbox)
    for extra, package in (("dask", "distributed"), ("mpi", "mpi4py")):
        have = "installed" if find_spec(package) else f"not installed; pip install 'training-puzzles[{extra}]'"
        yield f"--{extra}", have


def _user() -> str:
    if os.getuid() == 0:
        return "you are root; each run is under a user that owns nothing"
    return f"runs are under your own user, number {os.getuid()}"


def _limits() -> str:
    if sys.platform == "linux":
        return "time, memory, output, files, processes"
    return "time, output, files; memory and processes are not limited on this system"


def _leftovers(sandboxed: bool) -> str:
    if sandboxed:
        return "end together with the sandbox"
    if sys.platform == "linux":
        return "are found and ended, also when they left their process group"
    return "are ended if they stay in their process group"
