"""Gives the interpreter of a worker what a player's code expects, and hides modules with answers from it."""

import _sitebuiltins
import builtins
import os
import sys

HIDDEN_MODULES = ("solutions", "tests", "notebooks", "puzzles.catalog.engine")
"""Modules that a submission cannot import: answers, and the trials of classes with their right results."""


def set_up_interpreter(packages: str) -> None:
    """Provides third-party packages, `exit` and unbuffered streams, and makes imports of hidden modules fail."""
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115  # as long as the process
    for fd, name in ((1, "stdout"), (2, "stderr")):
        stream = open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if packages and packages not in sys.path:
        sys.path.append(packages)
    for name in HIDDEN_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # which makes an import of it fail
