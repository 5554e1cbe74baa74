"""One survey or one run, by a process that was started for it alone: for systems that cannot fork.

What the run sends goes to the output of the process, what the player's code prints to its error stream. Only an audit
hook protects the hidden files here: the grader limits time and output, and ends the process.
"""

import json
import os
import sys

from puzzles.sandbox import protocol

from . import os_limits
from .runner import DefinitionRun, set_up_interpreter
from .source import SubmissionCode


def main() -> None:
    """Answers the one message on its input."""
    given = protocol.receive(os.fdopen(os.dup(0), "rb", buffering=0))
    out = os.dup(1)
    os.dup2(2, 1)
    if given is None:
        return
    code = SubmissionCode(given["name"], given["text"], given["slugs"])
    request = given["request"]
    if request is None:
        os.write(out, json.dumps(code.survey()).encode())
        return
    set_up_interpreter(given["packages"])
    os_limits.deny_paths(given["hidden"])
    run = DefinitionRun(code.compiled, request, given["limits"]["seconds"], out)
    os.write(out, b"\n")  # from here on, the client counts seconds
    run.run()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)
