"""A survey, or one run, by a process that was started for it alone: for systems that cannot fork.

What the run sends goes to the process' output, what the player's code prints to its error stream. Nothing here takes
rights away but the fence around the answers: the grader limits time and output, and ends the process.
"""

from __future__ import annotations

import os
import sys

from puzzles.sandbox import protocol

from . import os_limits
from .runner import Performance
from .server import furnish
from .source import Source


def main() -> None:
    """Does what the one message on its input asks for."""
    given = protocol.receive(os.fdopen(os.dup(0), "rb", buffering=0))
    out = os.dup(1)
    os.dup2(2, 1)
    if given is None:
        return
    source = Source(given["name"], given["parts"], given["notebook"], given["slugs"])
    request = given["request"]
    if request is None:
        protocol.send(os.fdopen(out, "wb"), source.survey())
        return
    furnish(given["packages"])
    os_limits.fence_off(given["hidden"])
    Performance(source, request, given["limits"]["seconds"], out).run()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)
