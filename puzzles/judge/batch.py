"""Grades many files at once. Processes get a few files at a time, so memory does not grow with their number.

It decides which process grades which file, what is graded again after a process broke, and what a report says of a file
whose grading failed: one bad file never costs the verdicts on others. A file that may have broken a process is graded
once more, alone. What is in a verdict is the judge's; which files there are is found by `submission`.

Processes are forked where that is safe, since they then share what was loaded. Rejected: threads, because Python would
run them in turns; a queue of all files, whose contents would be in memory at once; and cancelling of futures after an
interrupt, on which the executor's own thread breaks.
"""

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from multiprocessing.connection import wait as wait_for
from multiprocessing.util import Finalize
from typing import Any

import click

from lib.errors import Sentences
from lib.ledger.algebra import counted
from puzzles import START
from puzzles.tracks import default_slugs, track_of

from .checkpoint import Checkpoint, GradingJob, close_kept_client
from .submission import Content, SourceFile
from .verdict import LOST, Graded, Shared, Verdict

SAYS = Sentences(
    {
        "grader failed": "the grader itself failed on this file ({why}); the other rows are not affected",
    }
)
"""Why a file has no verdict."""

QUEUED_PER_PROCESS = 3
"""Files handed out per process: one to grade, and others so that the process never waits."""

Read = Callable[[str], Content]


def grade_all(
    files: Sequence[SourceFile],
    job: GradingJob,
    jobs: int | None = None,
    checkpoint: Checkpoint | None = None,
    finish: Callable[[Graded], Graded] = lambda graded: graded,
) -> list[Graded]:
    """Grades all files in up to `jobs` processes and returns the verdicts in the order of the files.

    Progress goes to the terminal and to the checkpoint; files that it knows are not graded again. `finish` is called
    with each file's verdicts as they arrive.
    """
    found = {file.path: file for file in files}
    if len(found) == 1:
        return [finish(job.grade(path, file.content())) for path, file in found.items()]
    processes, shared = jobs or cores(), Shared()

    def read(path: str) -> Content:
        given = found[path].content()
        if checkpoint is not None:
            checkpoint.begin(path, given)
        return given

    known = {path: checkpoint.known(path, read(path)) for path in found} if checkpoint and checkpoint.resumes else {}
    done = {path: shared(finish(graded)) for path, graded in known.items() if graded is not None}
    to_do = [path for path in found if path not in done]
    to_do.sort(key=lambda path: -found[path].size)  # so that no process is left with a long file at the end
    with closing(_with_progress_bar(_distribute(to_do, job, read, processes), len(to_do))) as results:
        for graded in results:
            done[graded.path] = shared(finish(graded))
            if checkpoint is not None and not graded.is_lost:
                checkpoint.add(graded, found[graded.path].content())
    lost = sum(graded.is_lost for graded in done.values())
    if lost:
        click.echo(
            f"The sandbox was lost while it graded {lost} of {counted(len(found), 'file')}; repeat that with --resume.",
            err=True,
        )
    return [done[path] for path in found]


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalProcesses(ProcessPoolExecutor):
    """Processes of this machine, which can be ended while they work. They are forked where that is safe: on Linux, as
    long as this process has no threads."""

    def __init__(self, processes: int) -> None:
        context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
        begin = f"{START}; from {__name__} import _begin_process; _begin_process()"  # START is a process's first import
        super().__init__(processes, context, initializer=exec, initargs=(begin,))

    def submit(self, *given: Any, **more: Any) -> Future[Any]:
        """Interrupts wait meanwhile: a process that was just forked does not ignore them yet."""
        if not hasattr(signal, "pthread_sigmask"):
            return super().submit(*given, **more)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(*given, **more)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """After an error or an interrupt nobody waits for runs: the processes end now, with their sandboxes. No future
        may be cancelled before that: the executor's own thread breaks on one. Python 3.14 has
        `ProcessPoolExecutor.terminate_workers` for this."""
        for process in list((self._processes or {}).values()) if kind else ():
            process.terminate()
        self.shutdown()  # otherwise the interpreter's end might find closed pipes


def _begin_process() -> None:
    """Makes a process of a pool end, with its sandboxes, whenever its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_now)
    gc.freeze()  # nothing that was loaded before the fork is garbage
    Finalize(None, close_kept_client, exitpriority=0)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        wait_for([parent.sentinel])
        os._exit(1)  # its servers' pipes close, so they end their runs and themselves

    threading.Thread(target=end_with_parent, daemon=True).start()


def _end_now(*_: object) -> None:
    close_kept_client()
    os._exit(1)


def _distribute(paths: Iterable[str], job: GradingJob, read: Read, processes: int) -> Generator[Graded, None, None]:
    """The verdicts as they arrive. If a process breaks, only the file that broke it is lost."""
    left, suspects = deque(paths), list[str]()
    while left:
        with LocalProcesses(processes) as executor:
            given: dict[Future[Graded], str] = {}
            while left or given:
                try:
                    while left and len(given) < processes * QUEUED_PER_PROCESS:
                        future = executor.submit(job.grade_with_kept_client, left[0], read(left[0]))
                        given[future] = left.popleft()
                except BrokenProcessPool:  # since the last wait
                    suspects += given.values()
                    break
                future = next(iter(wait(given, return_when=FIRST_COMPLETED).done))
                path, error = given.pop(future), future.exception()
                if error is None:
                    yield future.result()
                elif isinstance(error, BrokenProcessPool):
                    suspects += [path, *given.values()]
                    break  # the next file starts others
                else:
                    yield failed_row(path, job, f"{type(error).__name__}: {error}")
    for path in suspects:
        yield _in_own_process(path, job, read)


def _in_own_process(path: str, job: GradingJob, read: Read) -> Graded:
    """The verdict on a file that may have broken a process, from a process of its own."""
    with LocalProcesses(1) as executor:
        try:
            return executor.submit(job.grade, path, read(path)).result()  # type: ignore[no-any-return]
        except BrokenProcessPool:
            return failed_row(path, job, "the process that graded it ended")


def failed_row(path: str, job: GradingJob, why: str) -> Graded:
    def lost(slug: str) -> Verdict:
        track = track_of(slug)
        targets = track.words.targets(track.puzzle(slug))
        return Verdict(slug, track.name, "failed", targets, LOST, message=SAYS("grader failed", why=why[:300]))

    return Graded(path, tuple(map(lost, job.slugs or default_slugs())))


def _with_progress_bar(results: Generator[Graded, None, None], count: int) -> Generator[Graded, None, None]:
    if count < 2 or not sys.stderr.isatty():
        with closing(results):
            yield from results
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    first = next(results)  # the processes are forked before the bar starts its thread
    bar = Progress(*Progress.get_default_columns()[1:2], MofNCompleteColumn(), TimeRemainingColumn(),
                   TextColumn("{task.description}"), console=Console(stderr=True), transient=True)  # fmt: skip
    with closing(results), bar:
        task = bar.add_task("", total=count, completed=1)
        yield first
        for graded in results:
            bar.advance(task)
            yield graded
