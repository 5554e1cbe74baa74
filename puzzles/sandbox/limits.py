"""Limits of a run, and the alarm that holds the limit on wall time by raising inside code that may never end."""

import signal
import threading
from collections.abc import Callable
from time import perf_counter
from types import FrameType
from typing import NamedTuple, TypeVar

# --- The alarm ---
# Reading a submission executes none of it, so that has limits of its own, which a busy machine does not use up.


T = TypeVar("T")

TIME_LIMIT = 10.0
"""Seconds of wall time for one puzzle, at all its sizes together, unless another limit is set."""

READING_SECONDS = 10
"""Whole seconds of processor time in which a submission has to be read and compiled: on a busy machine, too."""

READING_PATIENCE = 60.0
"""Seconds of wall time after which reading is given up without blaming the submission."""

REPEAT_SECONDS = 0.05
"""Seconds until the alarm rings again: one ring ends one rank, and others may be stuck too."""

MIN_SECONDS = 0.001
"""Seconds until the first ring when no time is left; zero would mean no alarm at all."""


class TimeLimitError(BaseException):
    """Raised inside the code that took too long. Not an Exception, because players' code may catch those."""


class Timer:
    """A budget of seconds, from now on, for one or more pieces of work.

    The alarm needs POSIX and the main thread; elsewhere work runs without a limit. Work that keeps catching
    everything can only be ended together with its process.
    """

    def __init__(
        self,
        seconds: float,
        left: float | None = None,
        first: Callable[[], None] = lambda: None,
        describe: Callable[[FrameType], str] = lambda frame: "",
    ) -> None:
        """Of `seconds` in total, `left` are left. `first` is called when the alarm rings for the first time; `describe`
        says what a frame works on, such as 'rank 0, t=3', or nothing."""
        self.seconds = seconds
        self.work_at = ""
        """The innermost work that ran when the alarm first rang, as `describe` names it."""
        self._first = first
        self._describe = describe
        self.rang_at: list[tuple[str, int]] = []
        """File and line of each call that ran when the alarm first rang, the innermost first."""
        self._deadline = perf_counter() + (seconds if left is None else left)

    def line_in(self, path: str) -> int:
        """The line of a file that was being executed when the alarm first rang; 0 if none was."""
        return next((line for file, line in self.rang_at if file == path), 0)

    def run(self, work: Callable[[], T], in_greenlets: bool = False) -> T:
        """Returns the result of `work`. With `in_greenlets` the alarm is also raised in the greenlets that `work`
        switches to, whose frames do not lead back to it.
        """
        if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
            return work()

        def ring(_: int, frame: FrameType | None) -> None:
            # Only inside `work`: a ring that comes as it ends must not hit whoever called it.
            calls, work_at = [], ""
            while frame is not None and frame.f_code is not work.__code__:
                calls.append((frame.f_code.co_filename, frame.f_lineno))
                work_at = work_at or self._describe(frame)
                frame = frame.f_back
            if frame is not None:
                calls.append((work.__code__.co_filename, frame.f_lineno))
            if frame is not None or (in_greenlets and working):
                if not self.rang_at:
                    self.rang_at, self.work_at = calls, work_at
                    self._first()
                raise TimeLimitError

        working = True
        before = signal.signal(signal.SIGALRM, ring)
        try:
            signal.setitimer(signal.ITIMER_REAL, max(self._deadline - perf_counter(), MIN_SECONDS), REPEAT_SECONDS)
            result = work()
        finally:
            working = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        if self.rang_at:
            raise TimeLimitError
        return result


# --- What a run may use: the player sees it and can set it ---


MIB = 1 << 20


class Limits(NamedTuple):
    """The limits of one puzzle of one submission. Memory, output and files in bytes."""

    seconds: float = TIME_LIMIT
    """Of wall time, at all sizes together."""
    memory: int = 1024 * MIB
    """Of address space, for each process of a run."""
    output: int = 16 * MIB
    """Printed in one run; what is shown of it is much less."""
    files: int = 16 * MIB
    """Written to all files together; to one file where nothing adds them up."""
    processes: int = 4
    """Processes at once, the first one included. A run may start no thread."""
