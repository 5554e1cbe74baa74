"""Cells made from the catalog and from `solutions/`: the cells of one puzzle, and the setup cell."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from puzzles.address import requirement, source, wheel
from puzzles.catalog.puzzle import Puzzle
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.catalog.schedule.setting_text import differences
from puzzles.catalog.schedule.size_text import size_text
from puzzles.tracks import place, track_of
from puzzles.tracks.outcomes import capitalized
from puzzles.tracks.schedule.calls import reminder, value_calls
from puzzles.version import VERSION

from .overview_svg import overview_markdown

SOLUTIONS = Path(__file__).parents[3] / "solutions"
"""Next to lib, drawing and puzzles, in the clone and in the wheel."""

Cell = tuple[str, str, str]
"""Kind, text, and name, which becomes the cell's id."""


def setup() -> str:
    """The code that makes the puzzles importable. Where they are missing, as in Colab, it installs them: from a wheel
    next to the notebook, or from the published project. Until there is one, a wheel is the only safe source: anybody
    could register an unclaimed name."""
    elsewhere = f'raise ImportError("put {wheel()} next to this notebook, run again")'
    if source():
        elsewhere = f'get_ipython().run_line_magic("pip", "install --quiet {requirement()}")'
    return f"""\
# Makes the puzzles importable. It installs them only if they are missing, as in Colab; in a clone it installs nothing.
import sys
from importlib.util import find_spec
from pathlib import Path

here = Path.cwd()
clone = next((folder for folder in (here, *here.parents) if (folder / "puzzles" / "catalog").is_dir()), None)
if clone is not None:
    sys.path.insert(0, str(clone / "puzzles" / "package"))
elif find_spec("training_puzzles") is None:
    wheel = next(here.glob("training_puzzles-{VERSION}-*.whl"), None)
    if wheel is not None and sys.platform == "emscripten":  # JupyterLite
        import piplite

        await piplite.install(f"emfs:{{wheel}}")
    elif wheel is not None:
        get_ipython().run_line_magic("pip", f"install --quiet '{{wheel}}'")
    else:
        {elsewhere}

import training_puzzles  # now `import lib` finds the game's lib"""


def puzzle_cells(puzzle: SchedulePuzzle, solved: bool) -> Iterator[Cell]:
    """The cells of one puzzle: its task, the code to write, the call that plays it, hints, and background."""
    slug = puzzle.slug
    yield "markdown", _task(puzzle), f"{slug}-task"
    yield "code", (solution(slug) if solved else puzzle.starter).strip(), f"{slug}-code"
    yield "code", f'await play("{slug}", {slug})', f"{slug}-play"
    yield "markdown", _hints(puzzle), f"{slug}-hints"
    yield "markdown", _background(puzzle), f"{slug}-background"


def solution(slug: str) -> str:
    """The reference solution without its docstring and imports, which the notebook already has."""
    return without_head((SOLUTIONS / f"{slug}.py").read_text(encoding="utf-8"))


def any_puzzle_cells(puzzle: Puzzle, reference: Path | None) -> Iterator[Cell]:
    """The cells of a puzzle of any track, a teacher's too, with its reference solution filled in if that is given."""
    track, slug = track_of(puzzle.slug), puzzle.slug
    lines = [
        f"- `{line}`{meaning and f': {meaning}'}" for part in track.sections(puzzle) for line, meaning in part.lines
    ]
    calls = "\n".join(["<details><summary>What you may need</summary>", "", *lines, "", "</details>"])
    limits = f"{track.limits(puzzle)}."
    yield (
        "markdown",
        "\n\n".join([f"## {track.heading(puzzle)}", puzzle.statement.strip(), limits, calls]),
        f"{slug}-task",
    )
    code = without_head(reference.read_text(encoding="utf-8")) if reference else puzzle.starter
    yield "code", f"{track.starter_head([puzzle]).strip()}\n\n\n{code.strip()}", f"{slug}-code"
    yield "code", f'await play("{slug}", {slug})', f"{slug}-play"
    yield "markdown", _hints(puzzle), f"{slug}-hints"
    yield "markdown", _background(puzzle), f"{slug}-background"


def without_head(text: str) -> str:
    """A solution's source without its docstring and imports."""
    head = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
    return "\n".join(text.splitlines()[head[-1].end_lineno :]).strip()


def _task(puzzle: SchedulePuzzle) -> str:
    goal = puzzle.goal
    calls = "\n".join(f"- `{call}`: {meaning}" for call, meaning in [*reminder(puzzle), *value_calls(puzzle)])
    return f"""\
## {track_of(puzzle.slug).heading(puzzle)}

*{capitalized(place(puzzle.slug))}.*

{puzzle.statement.strip()}

{_new_here(puzzle)}{overview_markdown(puzzle)}

| model and ranks | target time | target memory |
|---|---|---|
| {size_text(goal.size)} | {goal.time_text} {goal.costs.time_unit} | {goal.memory_text} elements on any rank |

<details><summary>The calls you may need</summary>

{calls}

</details>"""


def _new_here(puzzle: SchedulePuzzle) -> str:
    """What differs from the classic games, as a table; nothing where nothing does."""
    rows = "".join(f"| {' | '.join(row)} |\n" for row in differences(puzzle.goal.setting, puzzle.calls))
    costs = puzzle.goal.costs.name
    return f"| costs `{costs}` | here | in the classics |\n|---|---|---|\n{rows}\n" if rows else ""


def _hints(puzzle: Puzzle) -> str:
    hints = "\n\n".join(
        f"<details><summary>Hint {number} of {len(puzzle.hints)}</summary>\n\n{hint}\n\n</details>"
        for number, hint in enumerate(puzzle.hints, 1)
    )
    return f"Stuck? Here are hints, from a nudge to the full idea:\n\n{hints}"


def _background(puzzle: Puzzle) -> str:
    sources = "\n".join(f"- {_linked(str(source))}" for source in filter(None, (*puzzle.sources, puzzle.credit)))
    return f"""\
### What you have built, and how real systems do it

{puzzle.concept.strip()}

{puzzle.in_practice.strip()}

{_more_background(puzzle)}<details><summary>Sources</summary>

{sources}

</details>"""


def _more_background(puzzle: Puzzle) -> str:
    titled = track_of(puzzle.slug).background(puzzle)
    return "".join(f"<details><summary>{title}</summary>\n\n{text.strip()}\n\n</details>\n\n" for title, text in titled)


def _linked(source: str) -> str:
    return re.sub(r"arXiv (\d{4}\.\d{4,5})", r"[arXiv \1](https://arxiv.org/abs/\1)", source)
