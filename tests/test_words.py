"""Each chapter words its refusals in one table: every reason that it raises is there with its facts, and no other."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from lib.errors import RuleError, Sentence
from lib.ledger.updates import SAYS

ROOT = Path(__file__).parents[1]
PATHS = [path for folder in ("lib", "puzzles") for path in sorted((ROOT / folder).rglob("*.py"))]


EVERY = "**"
"""Stands for the facts of a mapping."""


def calls(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """The reasons that a module gives, each with the names of its facts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "SAYS":
            (reason,) = (ast.literal_eval(arg) for arg in node.args)
            yield reason, {str(keyword.arg or EVERY) for keyword in node.keywords}


def tables(tree: ast.Module) -> list[ast.Dict]:
    """The tables of sentences in a module: at most one."""
    made = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Sentences")
    return [node.args[0] for node in made if isinstance(node.args[0], ast.Dict)]


def worded(table: ast.Dict) -> dict[str, set[str]]:
    """By reason: the facts in its sentence."""
    assert len({ast.literal_eval(key) for key in table.keys if key}) == len(table.keys), "a reason is worded once"
    sentences: dict[str, str] = ast.literal_eval(table)
    return {
        reason: {name.partition(".")[0] for _, name, _, _ in Formatter().parse(sentence) if name}
        for reason, sentence in sentences.items()
    }


def chapters() -> dict[str, list[Path]]:
    """The modules that share a table: one, or all of a room whose table is its `words.py`."""
    shared = [path for path in PATHS if path.name == "words.py" and path.parent.parent.parent == ROOT]
    rooms = {str(path.parent.relative_to(ROOT)): [*path.parent.rglob("*.py")] for path in shared}
    alone = [path for path in PATHS if not any(path in paths for paths in rooms.values())]
    return rooms | {str(path.relative_to(ROOT)): [path] for path in alone}


@pytest.mark.parametrize("chapter", sorted(chapters()))
def test_every_reason_of_a_chapter_is_worded_with_its_facts(chapter: str) -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in chapters()[chapter]]
    given = [call for tree in trees for call in calls(tree)]
    (table,) = [table for tree in trees for table in tables(tree)] or [ast.Dict([], [])]
    words = worded(table)
    assert [call for call in given if EVERY not in call[1] and not words.get(call[0], {call[0]}) <= call[1]] == []
    assert {reason for reason, _ in given} == set(words)
    assert [reason for reason in words if len(reason.split()) > 4] == [], "a reason is a name, no sentence"


def test_only_sentences_are_longer_than_a_line() -> None:
    for path in PATHS:
        source = path.read_text(encoding="utf-8")
        sentences = {key.lineno for table in tables(ast.parse(source)) for key in table.keys if key}
        lines = [re.split(r"  # (?:type: ignore|noqa)", line)[0] for line in source.splitlines()]
        long = {n for n, line in enumerate(lines, 1) if len(line) > 120 and len(line.split()) > 1}
        assert long <= sentences, path


def test_a_refusal_keeps_its_facts_with_its_place_and_between_processes() -> None:
    error = RuleError(SAYS("no such tier", tier="cloud", costs="copies", known="host")).at("rank 0, t=1, fetch()", 7)
    for copy in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(copy.problem, Sentence)
        assert (copy.problem.reason, copy.problem.facts["tier"]) == ("no such tier", "cloud")
        assert (copy.place, copy.line, str(copy)) == (error.place, 7, f"{error.place}: {error.problem}")
