"""The sandbox server: forks a supervisor for each submission, which forks a worker for each run and ends what is left.

Only workers read or run a player's code. The server lives as long as the grader wants, so that Python and numpy are
loaded once for many submissions; a forked worker starts in milliseconds with both.
Whatever the server has in memory, every later worker can read, so no submission ever passes through it.
"""

import gc
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from puzzles.sandbox import protocol, remove_tree

from . import os_limits
from .source import SubmissionCode  # noqa: F401  # so that no worker has to load it
from .supervisor import supervise


def main() -> None:
    """Serves one grader, submission by submission, until it closes the pipe or a supervisor is lost."""
    control = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    os_limits.protect_process()
    _load_asyncio()
    lost = 0
    while not lost and (conditions := protocol.receive(control)) is not None:
        os_limits.prepare()
        _warm_up(conditions)
        gc.freeze()  # so that no worker looks for garbage here, which would copy the memory that it shares
        gc.enable()  # which is disabled at the start, because modules are no garbage
        server = os.getpid()
        supervisor = os.fork()
        if supervisor == 0:
            supervise(conditions, control, answers, server)
        _, status = os.waitpid(supervisor, 0)
        os_limits.end_all(supervisor)
        lost = os.waitstatus_to_exitcode(status)
        with suppress(OSError):  # the grader has gone
            protocol.send(answers, {"left": lost})
    # After a loss, the pipe may hold the rest of a submission. It must not be read here.
    remove_tree.remove(os.getcwd())
    os._exit(0)


def _load_asyncio() -> None:
    """Imports asyncio, so that no worker has to, without TLS. A run cannot open a socket that would need it, and to
    load it takes a tenth of the server's start."""
    sys.modules["ssl"] = None  # type: ignore[assignment]  # which asyncio can do without
    import asyncio  # noqa: F401

    del sys.modules["ssl"]


def _warm_up(conditions: dict[str, Any]) -> None:
    """Imports what the workers will need: once, and only for tracks that are used, because numpy is slow to import."""
    for stage in conditions["stages"]:
        if conditions["packages"] and conditions["packages"] not in sys.path:
            sys.path.append(conditions["packages"])
        with suppress(ImportError):  # which each worker then reports
            import_module(stage)
