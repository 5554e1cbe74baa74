"""`puzzles doctor`: reports how this machine can isolate other people's code."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import click

from puzzles.sandbox.tiers import Tier, best
from puzzles.sandbox.worker import landlock


@click.command()
def doctor() -> None:
    """Tell how submissions are shut in on this machine, and what is missing."""
    for heading, finding in findings():
        click.echo(f"{heading:<12} {finding}")


def findings() -> Iterator[tuple[str, str]]:
    """Pairs of a heading, empty if it is that of the line before, and a finding."""
    from puzzles.grading.batch import cores

    yield "system", f"{platform.system()} {platform.release()}, Python {platform.python_version()}, {cores()} cores"
    tier = best()
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
    yield "limits", _limits(tier)
    yield "leftovers", _leftovers(tier)
    for extra, package in (("dask", "distributed"), ("mpi", "mpi4py")):
        have = "installed" if find_spec(package) else f"not installed; pip install 'training-puzzles[{extra}]'"
        yield f"--{extra}", have


def _user() -> str:
    if not hasattr(os, "getuid"):
        return "runs are under your own user"
    if os.getuid() == 0:
        return "you are root; each run is under a user that owns nothing"
    return f"runs are under your own user, number {os.getuid()}"


def _limits(tier: Tier) -> str:
    if not tier.forks:
        return "time, output; memory, files and processes are not limited on this system"
    if sys.platform == "linux":
        return "time, memory, output, files, processes"
    return "time, output, files; memory and processes are not limited on this system"


def _leftovers(tier: Tier) -> str:
    if not tier.forks:
        return "are ended as far as they are still children of their run"
    if tier.is_sandbox:
        return "end together with the sandbox"
    if sys.platform == "linux":
        return "are found and ended, also when they left their process group"
    return "are ended if they stay in their process group"
