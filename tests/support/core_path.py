"""A program that a test runs in a clone with less in it: the verdicts on the references of the core path, and screens.

It prints JSON: by core puzzle the status, the stars and the figures, judged in process; by command the exit code and
the output. Commands beyond SCREENS are its arguments.
"""

import asyncio
import json
import runpy
import sys

from click.testing import CliRunner

import drawing
import lib
from puzzles.catalog.path import CORE
from puzzles.cli.main import main
from puzzles.player.local_run import judge_here
from puzzles.tracks import SOLUTIONS, find, reference_file

GPIPE = str(SOLUTIONS / "gpipe.py")
SCREENS = (
    *("-h", "list", "path", "status", "show gpipe", "hint FSDP", "next", "watch -h"),
    *(f"draw {GPIPE} gpipe --text", f"run {GPIPE} gpipe --size 4,8,4", f"grade {GPIPE} --puzzle gpipe --json"),
)
SECONDS = 60.0


def verdict_on(slug: str) -> tuple[str, int, dict[str, float]]:
    definition = runpy.run_path(str(reference_file(slug)))[slug]
    verdict = asyncio.run(judge_here(find(slug), definition, SECONDS))
    return verdict.status, verdict.stars, dict(verdict.figures)


def screen(command: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, command.split(), prog_name="puzzles")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


if __name__ == "__main__":
    told = {
        "modules": [lib.__file__, drawing.__file__],
        "verdicts": {slug: verdict_on(slug) for slug in CORE},
        "screens": {command: screen(command) for command in SCREENS},
        "others": [screen(command) for command in sys.argv[1:]],
    }
    print(json.dumps(told).replace(str(SOLUTIONS), "solutions"))
