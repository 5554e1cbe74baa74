"""Many submissions at once: handed to an Executor in small numbers, so that memory does not grow with their count."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click

from puzzles.sandbox.client import Line
from puzzles.sandbox.limits import Limits
from puzzles.sandbox.tiers import Tier, best
from puzzles.tracks import default_slugs, track_of

from .checkpoint import Journal
from .grader import grade_file
from .session import line_of
from .submission import LARGEST, Submission
from .verdict import Graded, Verdict

AHEAD = 3
"""Files handed out for each worker: one at work, others so that it never has to wait."""


class Job(NamedTuple):
    """What to do with each file, as plain data that any executor can carry. No `slugs`: whatever a file attempts."""

    slugs: tuple[str, ...]
    limits: Limits
    tier: Tier
    strict: bool = False
    keep: bool = False

    def __call__(self, path: str, source: bytes | None, line: Line | None = None) -> Graded:
        """Grades the file with this content; `None` if it could not be read. On another machine than the one that
        asks, that one's tier has to work as well."""
        if self.tier.is_sandbox:
            best(self.tier.name)
        submission = Submission(Path(path), source) if source is not None else Submission.read(Path(path))
        puzzles = [track_of(slug).puzzle(slug) for slug in self.slugs] or None
        return grade_file(path, puzzles, self.limits, self.tier, self.strict, self.keep, submission, line)

    def beside_others(self, path: str, source: bytes | None) -> Graded:
        """The same in a worker of our own, whose keeper serves file after file and ends with it."""
        lines = vars(_kept)
        key = repr((self.tier, self.limits))
        if key not in lines:
            lines.clear()
            lines[key] = line_of(self.tier, self.limits)
        return self(path, source, lines[key])


_kept = threading.local()
"""The line of each thread of a worker. Its keeper ends when the line is forgotten, or its worker ends."""


def grade_all(
    paths: list[str],
    job: Job,
    jobs: int | None = None,
    resume: bool = False,
    dask: str | None = None,
    mpi: bool = False,
) -> list[Graded]:
    """The verdicts on all files, in their order. Progress is shown on a terminal, and kept in a journal."""
    if len(paths) == 1 and not (dask or mpi):
        return [job(paths[0], None)]
    workers = jobs or cores()
    with Journal.of(paths, job, resume) as journal:
        done = {path: graded for path in paths if (graded := journal.known(path, _content(path))) is not None}
        to_do = [path for path in paths if path not in done]
        try:
            grade = job if dask or mpi else job.beside_others  # what runs elsewhere leaves nothing behind there
            start = partial(_executor, workers, dask, mpi)
            for graded in _shown(_spread(to_do, job, start, workers, grade), len(to_do)):
                done[graded.path] = graded
                journal.note(graded, _content(graded.path))
        except KeyboardInterrupt:
            click.echo(f"Interrupted after {len(done)} of {len(paths)} files; --resume goes on from there.", err=True)
            raise
        journal.finish()
    return [done[path] for path in paths]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read(LARGEST + 1)
    except OSError:
        return None


def _executor(workers: int, dask: str | None, mpi: bool) -> Executor:
    if dask:
        try:
            from distributed import Client
        except ImportError:
            raise click.UsageError(_missing("--dask", "distributed", "dask")) from None
        return Client(dask).get_executor()  # type: ignore[no-any-return,no-untyped-call]
    if mpi:
        try:
            from mpi4py.futures import MPIPoolExecutor
        except ImportError:
            raise click.UsageError(_missing("--mpi", "mpi4py", "mpi")) from None
        return MPIPoolExecutor()  # type: ignore[no-any-return]
    return pool(workers)


def _missing(option: str, package: str, extra: str) -> str:
    return f"{option} needs the package {package}; install it with: pip install 'training-puzzles[{extra}]'"


def pool(workers: int) -> Executor:
    """Local processes. Forking is quicker where it is safe: on Linux, before this process has threads."""
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    return ProcessPoolExecutor(workers, context, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))


def _spread(
    paths: Iterable[str],
    job: Job,
    start: Callable[[], Executor],
    workers: int,
    grade: Callable[[str, bytes | None], Graded] | None = None,
) -> Iterator[Graded]:
    """The verdicts as they come. A worker that breaks costs no file but the one that broke it."""
    left = iter(paths)
    suspects: list[str] = []
    under_way: dict[Future[Graded], str] = {}
    executor: Executor | None = None
    try:
        while True:
            while len(under_way) < workers * AHEAD and (path := next(left, None)) is not None:
                executor = executor or start()
                under_way[executor.submit(grade or job, path, _content(path))] = path
            if not under_way:
                break
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                path = under_way.pop(future)
                error = future.exception()
                if error is None:
                    yield future.result()
                elif isinstance(error, BrokenProcessPool):
                    suspects += [path, *under_way.values()]
                    under_way.clear()
                    executor = None
                    break
                else:
                    yield broken(path, job, f"{type(error).__name__}: {error}")
    finally:
        if executor is not None:
            for future in under_way:
                future.cancel()
            executor.shutdown()  # without waiting, the interpreter's own end may come upon closed pipes
    for path in suspects:
        yield _alone(path, job)


def _alone(path: str, job: Job) -> Graded:
    """The verdict on a file that may have broken a worker, in a worker that only it can break."""
    with pool(1) as executor:
        try:
            return executor.submit(job, path, _content(path)).result()
        except BrokenProcessPool:
            return broken(path, job, "the process that graded it ended")


def broken(path: str, job: Job, why: str) -> Graded:
    """The row of a file on which the grader itself failed."""
    message = f"the grader itself failed on this file ({why[:300]}); the other rows are not touched by it"
    return Graded(path, tuple(_crash(slug, message) for slug in job.slugs or default_slugs()))


def _crash(slug: str, message: str) -> Verdict:
    track = track_of(slug)
    return Verdict(slug, track.name, "failed", track.targets(track.puzzle(slug)), "crash", message=message)


def _shown(results: Iterator[Graded], count: int) -> Iterator[Graded]:
    """The same, with a progress bar where somebody watches."""
    if count < 2 or not sys.stderr.isatty():
        yield from results
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    first = next(results)  # the workers are forked before the bar starts its thread
    bar = Progress(*Progress.get_default_columns()[1:2], MofNCompleteColumn(), TimeRemainingColumn(),
                   TextColumn("{task.description}"), console=Console(stderr=True), transient=True)  # fmt: skip
    with closing(results), bar:
        task = bar.add_task("", total=count, completed=1)
        yield first
        for graded in results:
            bar.advance(task)
            yield graded
