"""The game around the runtime: the catalog of puzzles, the grader, the command line, and `play` for notebooks.

from puzzles import play
"""

from typing import Any

__all__ = ["play"]


def __getattr__(name: str) -> Any:
    """`play` is loaded when it is asked for, so that importing one module of the package loads only that."""
    if name == "play":
        from puzzles.notebook.play import play

        return play
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
