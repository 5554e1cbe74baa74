"""Which cells an annotation names: annotations of PyTorch's pipelines, and others by a TOML file."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass

from lib.errors import RuleError
from lib.schedules import Cell
from lib.schedules.cells import OPERATIONS, Slot
from lib.torch_csv.files import slot_of

from .sources import clipped
from .words import SAYS

GROUPS = ("stage", "batch", "chunk", "op")

GPIPE = re.compile(r"(Forward|Backward) (\d{1,6})")


@dataclass(frozen=True)
class NameRule:
    """A pattern for full names, and the operation that they mean unless the name states one."""

    match: re.Pattern[str]
    op: str

    def slot(self, name: str) -> Slot | None:
        named = self.match.fullmatch(name)
        if named is None:
            return None
        said = named.groupdict()
        op = said.get("op") or self.op
        if op not in OPERATIONS:
            raise RuleError(SAYS("no such operation", name=clipped(name), op=clipped(op)))
        stage = _number(name, said.get("stage"), -1 - _number(name, said.get("chunk"), 0))
        return (Cell(stage, op, _number(name, said.get("batch"), -1)),)


def _number(name: str, text: str | None, otherwise: int) -> int:
    if text is None:
        return otherwise
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise RuleError(SAYS("no number", name=clipped(name), got=clipped(text)))
    return int(text)


def slot_named(name: str, rules: Sequence[NameRule] = ()) -> Slot | None:
    """The cells that an annotation names; None for any other."""
    for rule in rules:
        if (slot := rule.slot(name)) is not None:
            return slot
    if name.startswith("PP:"):
        return slot_of(name.removeprefix("PP:"))
    if cell := GPIPE.fullmatch(name):
        return (Cell(-1, cell[1][0], int(cell[2])),)
    return None


def read_rules(text: str, file: str) -> list[NameRule]:
    """The rules of a TOML file: `[[cell]]` with `match`, a regular expression with the groups stage, batch, chunk and
    op, and `op`.

    Raises:
        RuleError: naming the file and what is wrong.
    """
    try:
        cells = tomllib.loads(text).get("cell")
    except (tomllib.TOMLDecodeError, RecursionError) as why:
        raise RuleError(f"{file} is not TOML: {clipped(str(why))}") from None
    if not isinstance(cells, list) or not cells or not all(isinstance(cell, dict) for cell in cells):
        raise RuleError(f"{file} has no [[cell]]; each has match = '...' and op = \"F\"")
    rules = []
    for number, cell in enumerate(cells, 1):
        match, op = cell.get("match"), cell.get("op", "")
        if not isinstance(match, str):
            raise RuleError(f"{file}, cell {number} has no match = '...', a regular expression for full names")
        try:
            pattern = re.compile(match)
        except (re.error, RecursionError, OverflowError) as why:
            raise RuleError(f"{file}, cell {number}: '{clipped(match)}' is not a regular expression: {why}") from None
        if unknown := [group for group in pattern.groupindex if group not in GROUPS]:
            raise RuleError(f"{file}, cell {number} has the group {unknown[0]}; groups are {', '.join(GROUPS)}")
        if op not in OPERATIONS and "op" not in pattern.groupindex:
            raise RuleError(f"{file}, cell {number} has no operation: op is F, B, I or W, or a group of the pattern")
        rules.append(NameRule(pattern, op))
    return rules
