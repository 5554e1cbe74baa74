"""Turns an exception into one sentence for the player, with the line of the player's file; writes files."""

import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from lib import Model, PuzzleError, Value
from lib.errors import meant
from lib.ledger.algebra import counted

GAME_PACKAGES = ("lib", "drawing", "puzzles")

MAX_ERROR_TEXT = 300
"""Characters of an exception's own text that are shown."""


class UnreadableError(Exception):
    """A file that is not read; the text is a whole sentence for the player."""


class Failure(NamedTuple):
    """Why a run does not count: the reason in one word, a sentence, and the line (0 if unknown)."""

    reason: str
    sentence: str
    line: int = 0
    file: str = ""
    """The file or cell of the line, if it may differ from the submission."""
    method: str = ""
    """The method of a class that it belongs to, if no line is known."""

    @property
    def message(self) -> str:
        return f"line {self.line}: {self.sentence}" if self.line else self.sentence


def of_refusal(error: PuzzleError, otherwise: int = 0) -> Failure:
    """The failure for a refusal of the game. One that belongs to no line is shown at line `otherwise`."""
    return Failure(error.reason, sanitized(str(error)), error.line or otherwise)


UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What `ast.parse` raises for a text that is not Python."""


def of_source(problem: Exception) -> Failure:
    """The failure for a file that is not Python, or cannot be read."""
    if isinstance(problem, SyntaxError):
        text = problem.msg or "invalid syntax"
        line = problem.lineno or 0
        advice = ""
        if "'await' outside" in text:
            advice = "; await inside functions only, because the grader creates the models and runs the ranks"
        return Failure("syntax", sanitized(f"this is not valid Python: {text}{advice}"), line)
    if isinstance(problem, UnreadableError):
        return Failure("syntax", sanitized(str(problem)))
    if isinstance(problem, OSError):
        return Failure("crash", f"this file cannot be read: {problem.strerror or problem}")
    if isinstance(problem, RecursionError | MemoryError):
        return Failure("syntax", "this is nested too deeply for Python to read; simplify it")
    return Failure("syntax", sanitized(f"this is not valid Python: {problem}"))


def of_crash(error: BaseException, path: str, place: str = "", otherwise: int = 0) -> Failure:
    """The failure for an exception of the player's own code; `place` names the rank and the time."""
    line = line_in(error.__traceback__, path) or otherwise
    where = f"{place}: " if place else ""
    cause = error.__cause__
    if isinstance(error, MemoryError):
        return Failure("memory", f"{where}there was no memory left; make fewer or smaller objects", line)
    if isinstance(error, SystemExit) or isinstance(cause, SystemExit):
        leaving = error if isinstance(error, SystemExit) else cause
        assert leaving is not None
        line = line_in(leaving.__traceback__, path) or line
        return Failure("crash", f"{where}this called exit; let the function return instead", line)
    if isinstance(error, RecursionError):
        return Failure("crash", f"{where}RecursionError: a function calls itself endlessly", line)
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be shown)"
    name = type(error).__name__
    if isinstance(error, ImportError):
        text = _import_text(error, text)
    elif isinstance(error, AttributeError):
        text += _near_attribute(error)
    elif isinstance(error, TypeError):
        text = _call_text(text)
    elif isinstance(error, KeyError) and error.args and isinstance(error.args[0], Value):
        text = f"the {error.args[0]}"
    text = sanitized(f"{name}: {text}" if text else name)
    if isinstance(error, ModuleNotFoundError):
        text += "; the file is run alone: put what it needs into it"
    if isinstance(error, BlockingIOError):
        text += "; a run may start few processes, and needs none; see --limit processes=9"
    if "can't start new thread" in text:
        text += "; a run may start no thread"
    return Failure("crash", where + (text if len(text) <= MAX_ERROR_TEXT else text[: MAX_ERROR_TEXT - 3] + "..."), line)


def _near_attribute(error: AttributeError) -> str:
    """For an object of a class of the game: the name of the game that was meant."""
    classes = [one for one in type(error.obj).__mro__ if one.__module__.partition(".")[0] in GAME_PACKAGES]
    near = meant(error.name or "", [name for one in classes for name in vars(one) if not name.startswith("_")])
    return f"; did you mean '{near}'?" if near else ""


OF_MODEL = re.compile(rf"\b(?:{'|'.join(one.__name__ for one in Model.__mro__[:-1])})\.(?=\w+\(\))")


TOO_MANY = re.compile(
    r"\b(\w+)(\.\w+\(\) takes )(?:from (\d+) to )?(\d+) positional arguments? but (\d+)(.*?) (?:was|were) given"
)


def _call_text(text: str) -> str:
    """A wrong call: the method and its arguments as a player writes them, and that only coroutines are awaited."""
    if re.search("can't be (used in 'await' expression|awaited)", text):
        return f"{text}; what is awaited here is a result already, so leave 'await' out"
    return OF_MODEL.sub("model.", TOO_MANY.sub(_without_self, text))


def _without_self(wrong: re.Match[str]) -> str:
    """Too many arguments of a method of the game, without the object itself, which Python counts."""
    name, takes, least, most, given, more = wrong.groups()
    loaded = [module for path, module in sys.modules.items() if path.partition(".")[0] == "lib"]
    if not any(isinstance(getattr(module, name, None), type) for module in loaded):
        return wrong[0]
    span = f"from {int(least) - 1} to " if least else ""
    verb = "was" if given == "2" else "were"
    return f"{name}{takes}{span}{counted(int(most) - 1, 'positional argument')} but {int(given) - 1}{more} {verb} given"


def _import_text(error: ImportError, text: str) -> str:
    """The text of a failed import, without paths of this machine; for a package of the game, with the name meant."""
    wanted = re.match(r"cannot import name '(\w+)' from '([\w.]+)'", text)
    if wanted is None:
        return text
    name, package = wanted.groups()
    has = getattr(sys.modules.get(package), "__all__", ()) if package.partition(".")[0] in GAME_PACKAGES else ()
    if not has:
        return wanted[0]
    near = get_close_matches(name, has, n=1, cutoff=0.6)
    advice = f"did you mean '{near[0]}'?" if near else f"dir({package}) lists what there is"
    return f"there is no '{name}' in {package}; {advice}"


def line_in(traceback: TracebackType | None, path: str) -> int:
    """The last line of the file at `path` that a traceback goes through; 0 if none."""
    line = 0
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == path:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def sanitized(text: str) -> str:
    """Text that may come from the player, on one line and without control characters."""
    text = " ".join(text.split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def require_ending(path: str | Path, known: Sequence[str]) -> str:
    """The ending of a file to write, in small letters; a PuzzleError names those that are known."""
    ending = Path(path).suffix.lower()
    if ending not in known:
        raise PuzzleError(f"cannot write {path}: the name must end with {', '.join(known[:-1])} or {known[-1]}")
    return ending


def write_file(path: str | Path, text: str) -> None:
    """Writes a file for the player; a PuzzleError says why it cannot."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as why:
        raise PuzzleError(f"cannot write {path}: {(why.strerror or str(why)).lower()}") from None
