"""The speed of the runtime and of its pictures: `make bench` prints it, also in bare asyncio switches.

A line ends in OK when it keeps the promise in brackets. Nothing here fails: times are for people to look at.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from drawing import draw, svg
from drawing.files import in_form
from drawing.scene import scene_of
from lib import COSTS, Setting, referee, run
from solutions.fsdp_prefetch import fsdp_prefetch
from tests.bench import engine
from tests.support import CLASSICS

FSDP = next(classic.solution for classic in CLASSICS if classic.slug == "fsdp")


def best(measure: Callable[[], Any], times: int = 5) -> float:
    """The shortest of a few measurements, in seconds: the one that was disturbed least."""

    def once() -> float:
        start = perf_counter()
        measure()
        return perf_counter() - start

    return min(once() for _ in range(times))


def bare_switch(times: int = 100_000) -> float:
    """Seconds of one switch between two asyncio tasks that do nothing."""

    async def idle() -> None:
        for _ in range(times // 2):
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(idle(), idle())

    return best(lambda: asyncio.run(both())) / times


@dataclass
class Measured:
    """Seconds to run and to judge something, by turn."""

    run: list[float] = field(default_factory=list)
    judged: list[float] = field(default_factory=list)
    events: int = 0


def by_turns(turns: int, *makers: Callable[[], Any]) -> list[Measured]:
    """Measures each maker of a run. In a turn one follows the other, so that all see the same machine."""
    found = [Measured() for _ in makers]
    for _ in range(turns):
        for make, measured in zip(makers, found):
            start = perf_counter()
            outcome = make()
            made = perf_counter()
            report = referee(outcome.trace)
            measured.run.append(made - start)
            measured.judged.append(perf_counter() - made)
            assert report.error is None
            measured.events = events_of(outcome)
            del outcome, report
    return found


def ratio(of: Sequence[float], to: Sequence[float]) -> float:
    """The median of what was measured in the same turns."""
    return median(a / b for a, b in zip(of, to))


def fsdp(layers: int, ranks: int) -> Any:
    return run(FSDP, layers, ranks, ranks)


def fsdp_with_overlap(layers: int, ranks: int) -> Any:
    """As `fsdp`, with gathers that run beside computation."""
    return run(fsdp_prefetch, layers, ranks, ranks, setting=Setting(COSTS["overlap"]))


def events_of(outcome: Any) -> int:
    return sum(len(outcome.trace.events(rank)) for rank in range(len(outcome.models)))


def classics() -> None:
    for classic in CLASSICS:
        assert referee(run(classic.solution, *classic.size).trace, classic.goal).status == "passed"


def shell(*command: str) -> float:
    """Seconds of a command, with compiled modules in a cache as after an installation: the first time fills it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with TemporaryDirectory() as cache:
        environment["PYTHONPYCACHEPREFIX"] = cache
        go = partial(subprocess.run, [sys.executable, *command], check=True, stdout=subprocess.DEVNULL, env=environment)
        return best(go, 5)


def picture(what: str, outcome: Any) -> None:
    """Prints the time to draw a run, and the size of its picture."""
    with redirect_stdout(StringIO()):
        seconds = best(lambda: svg(draw(outcome)), 3)
        size = len(svg(draw(outcome)).encode())
    events = events_of(outcome)
    show(f"{what} ({events:,} events), drawn", seconds / events * 1e3, "ms/ev", 0.35)
    show("  its size", size / events, "B/ev", 900)


def all_drawn(outcomes: Sequence[Any]) -> None:
    for outcome in outcomes:
        svg(draw(outcome))


def drawings() -> None:
    outcomes = [run(classic.solution, *classic.size) for classic in CLASSICS]
    picture("pipeline_fsdp", outcomes[-1])
    picture("fsdp, 12 ranks, 40 layers", run(FSDP, 40, 12, 12))
    with redirect_stdout(StringIO()):
        eight = best(lambda: all_drawn(outcomes), 3)
        long = run(FSDP, 52, 32, 32)
        page = best(lambda: in_form(scene_of(long.trace), "", ".html"), 2)
    show("the eight classics, drawn", eight, "s", 0.6)
    events = events_of(long)
    show(f"fsdp, 32 ranks, 52 layers ({events:,} events), as a page", page, "s", 3)


def grading() -> None:
    """The second half of a minute or two: a class of a thousand is graded."""
    from tests.bench.grader import class_of, course_of_300, eight, grade, slow_class_of

    few = min((grade(*eight()) for _ in range(5)), key=lambda found: found.seconds)
    show("puzzles grade, the eight solutions, isolated", few.seconds, "s", 1)
    show("  at work, of all cores' seconds", few.busy, "s", 2)
    known = grade(*eight(), "solutions/records")
    show(f"  with their records ({known.runs} runs), core seconds a run", known.of_a_run, "s", 0.05)
    several = class_of(24)
    show(f"a class of 24 ({several.runs} runs), core seconds a run", several.of_a_run, "s", 0.05)
    whole, index = course_of_300()
    show("a course of 300, with pages and a gradebook", whole.seconds, "s", 120)
    show("  memory of the grader", whole.memory / 1024, "MiB", 200)
    show("  its index", index / 1000, "kB", 100)
    small, large = (slow_class_of(files).memory for files in (50, 1000))
    show(f"memory of the grader for a class of 1,000: {large >> 10} MiB; a file's", (large - small) / 950, "KiB", 4)


def show(what: str, value: float, unit: str, limit: float, in_switches: float | None = None) -> None:
    switches = "" if in_switches is None else f"= {in_switches:,.1f} switches"
    print(f"{what:<52} {value:8.2f} {unit:<5} {switches:<20} [at most {limit:g}] {'OK' if value <= limit else 'SLOW'}")


def main() -> None:
    switch = bare_switch()
    print(f"{'a bare asyncio switch, the yardstick':<52} {switch * 1e6:8.2f} us")
    eight = best(classics)
    show("the eight classics, run and judged", eight * 1e3, "ms", 60, eight / switch)
    plain, beside = by_turns(15, partial(fsdp, 32, 64), partial(fsdp_with_overlap, 32, 64))
    of_an_event = min(plain.run) / plain.events
    show(f"fsdp, 64 ranks, 32 layers ({plain.events:,} events), of an event", of_an_event / switch, "sw", 8)
    show("  judged, in the time of its run", ratio(plain.judged, plain.run), "x", 1)
    show("fsdp with overlap, in the time of fsdp", ratio(beside.run, plain.run), "x", 1.5)
    show("  judged, in the time of fsdp judged", ratio(beside.judged, plain.judged), "x", 1.5)
    (large,) = by_turns(1, partial(fsdp, 96, 1024))
    each = min(large.run) / large.events
    show(f"fsdp, 1,024 ranks, 96 layers ({large.events:,} events)", each / of_an_event, "x", 1.5, each / switch)
    show("  judged, in the time of its run", ratio(large.judged, large.run), "x", 1)
    empty = shell("-c", "pass")
    playing = shell("-c", "from lib import Model, run") - empty
    show("from lib import Model, run, beyond an empty interpreter", playing * 1e3, "ms", 80)
    drawings()
    grading()
    engine.main(show)


if __name__ == "__main__":
    main()
