"""Fills docs/extended.md: calls of `Model` and fields of `Costs`, as their docstrings say, and lists of puzzles.

The page has its examples, and what they show; what a call does is said once, in its docstring.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from lib import Costs, Model
from lib.ledger.named_costs import MEANINGS
from puzzles.catalog.content import CONTENT, puzzle_files
from puzzles.catalog.schedule import PUZZLES, SchedulePuzzle
from puzzles.tracks import track_of

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "extended.md"
CALLS = re.compile(r"<!-- (calls ([\w ]+)) -->")

USES: Mapping[str, Callable[[SchedulePuzzle], object]] = {
    "groups": lambda p: "group" in p.parameters,
    "frozen": lambda p: p.goal.setting.frozen or p.goal.setting.whole,
    "overlap": lambda p: p.goal.costs.overlap,
    "halves": lambda p: "backward_input" in p.calls,
    "tags": lambda p: "tag" in p.parameters,
    "blocks": lambda p: p.goal.setting.layer == "block",
    "experts": lambda p: p.goal.setting.layer == "experts",
    "tiers": lambda p: {"offload", "fetch"} & {*p.calls},
    "unequal": lambda p: p.goal.setting.kinds or p.goal.setting.lengths or p.goal.costs.slow,
    "attention": lambda p: p.goal.setting.layer == "attention",
    "steps": lambda p: p.goal.setting.steps > 1,
}
"""By the name of a list on the page: the puzzles that it has."""


def page() -> str:
    """The page with everything that is generated."""
    text = FILE.read_text(encoding="utf-8")
    for name, use in USES.items():
        slugs = [slug for slug, puzzle in PUZZLES.items() if use(puzzle)]
        text = filled(text, f"puzzles {name}", [f"Puzzles: {', '.join(map(linked, slugs))}."])
    for name, calls in CALLS.findall(text):
        text = filled(text, name, table("call", "what it does", map(call, calls.split())))
    text = filled(text, "fields of Costs", table("field", "meaning", fields(Costs)))
    return filled(text, "named costs", table("costs", "what is particular to them", MEANINGS.items()))


def table(heading: str, meaning: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield from (f"| {heading} | {meaning} |", "|---|---|")
    for name, words in rows:
        yield f"| `{name}` | {words} |"


def call(name: str) -> tuple[str, str]:
    """A method of a model as a player calls it, and its docstring."""
    method = getattr(Model, name)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(method).parameters.values()
        if (name, parameter.name) != ("update", "shard") and parameter.name != "self"
    ]
    paragraphs = (inspect.getdoc(method) or "").split("\n\n")
    said = " ".join(" ".join(one for one in paragraphs if not one.startswith("`shard` is accepted")).split())
    return f"{name}{inspect.Signature(parameters)}", said


def fields(record: type) -> Iterator[tuple[str, str]]:
    """The fields of a record that say what they are, with that."""
    (body,) = ast.parse(inspect.getsource(record)).body
    assert isinstance(body, ast.ClassDef)
    for node, following in zip(body.body, body.body[1:]):
        match node, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=value),
                ast.Expr(value=ast.Constant(value=str(words))),
            ) if "init=False" not in ast.unparse(value or node):
                yield name, " ".join(words.split())


def filled(text: str, name: str, lines: Iterable[str]) -> str:
    """A page with these lines between the comments of a name."""
    head, begin, rest = text.partition(f"<!-- {name} -->\n")
    _, end, tail = rest.partition(f"<!-- end of {name} -->\n")
    return f"{head}{begin}{''.join(f'{line}{chr(10)}' for line in lines)}{end}{tail}"


def linked(slug: str, bold: bool = False) -> str:
    """A puzzle's name as a link to its file."""
    (file,) = (name for (track, _, one), name in puzzle_files().items() if (track, one) == (track_of(slug).name, slug))
    mark = "**" * bold
    return f"{mark}[{slug}](../{(CONTENT / file).relative_to(ROOT).as_posix()}){mark}"
