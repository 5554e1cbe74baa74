"""The game around the runtime: the catalog of puzzles, the grader, the command line, and for notebooks `play` and
`profile`.

from puzzles import play, profile
"""

from os.path import dirname, join, realpath

TYPE_CHECKING = False  # `typing` is not imported; see `search_path`
if TYPE_CHECKING:
    from typing import Any

__all__ = ["play", "profile"]


def __getattr__(name: str) -> "Any":
    """Each is loaded when it is asked for, so that importing one module of the package loads only that."""
    if name == "play":
        _require_our_lib()
        from puzzles.player.play import play

        return play
    if name == "profile":
        _require_our_lib()
        from puzzles.player.profile import profile

        return profile
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class OtherLibError(ImportError):
    """Another `lib` comes before the game's, such as the original puzzles' in the current folder."""

    def _render_traceback_(self) -> list[str]:
        """The text that IPython shows: this sentence, without the machinery."""
        return [f"ImportError: {self}"]


def _require_our_lib() -> None:
    """Refuses to go on with another module called `lib`."""
    from importlib.util import find_spec  # here, as above

    found = find_spec("lib")
    place = (found and found.origin) or "another module"
    if dirname(realpath(place)) != join(dirname(dirname(realpath(__file__))), "lib"):
        raise OtherLibError(
            f"{place} hides the game's own lib; restart Python and write 'import training_puzzles' first, or work in "
            "another folder",
            name="lib",
        )
