"""Each table of sentences has every reason that its room or its file gives, with its facts, and no other."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from lib.errors import RuleError, Sentence
from lib.rules.words import SAYS

ROOT = Path(__file__).parents[2]
TABLES = [
    path
    for folder in ("lib", "puzzles")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "\nSAYS = Sentences(" in path.read_text(encoding="utf-8")
]


def calls(table: Path) -> Iterator[tuple[str, set[str]]]:
    """The reasons that a room gives, or a file with a table of its own, each with the names of its facts."""
    for path in sorted(table.parent.rglob("*.py")) if table.name == "words.py" else [table]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "SAYS":
                (reason,) = (ast.literal_eval(arg) for arg in node.args)
                facts = {keyword.arg for keyword in node.keywords}
                yield reason, set(sentences(table)[reason]) if None in facts else {str(name) for name in facts}


def sentences(table: Path) -> dict[str, set[str]]:
    """By reason: the facts in its sentence."""
    (given,) = (
        node.args[0]
        for node in ast.walk(ast.parse(table.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Sentences"
    )
    assert isinstance(given, ast.Dict)
    assert len({ast.literal_eval(key) for key in given.keys if key}) == len(given.keys), "a reason is worded once"
    templates: dict[str, str] = ast.literal_eval(given)
    return {
        reason: {name.partition(".")[0] for _, name, _, _ in Formatter().parse(sentence) if name}
        for reason, sentence in templates.items()
    }


@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table.parent.name}-{table.stem}")
def test_every_reason_of_a_room_is_worded_with_its_facts(table: Path) -> None:
    worded = sentences(table)
    given = list(calls(table))
    assert [(reason, facts) for reason, facts in given if not worded.get(reason, {reason}) <= facts] == []
    assert {reason for reason, _ in given} == set(worded)
    assert [reason for reason in worded if len(reason.split()) > 4] == [], "a reason is a name, no sentence"


def test_a_refusal_keeps_its_facts_with_its_place_and_between_processes() -> None:
    error = RuleError(SAYS("no such tier", tier="cloud", costs="copies", known="host")).at("rank 0, t=1, fetch()", 7)
    for copy in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(copy.problem, Sentence)
        assert (copy.problem.reason, copy.problem.facts["tier"]) == ("no such tier", "cloud")
        assert (copy.place, copy.line, str(copy)) == (error.place, 7, f"{error.place}: {error.problem}")
