"""Each room words its refusals in one table: every reason that is raised is there with its facts, and no other."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from lib.errors import RuleError, Sentence
from lib.rules.words import SAYS

LIB = Path(__file__).parents[2] / "lib"


def calls(room: Path) -> Iterator[tuple[str, set[str]]]:
    """The reasons that a room gives, each with the names of its facts."""
    for path in sorted(room.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "SAYS":
                (reason,) = (ast.literal_eval(arg) for arg in node.args)
                yield reason, {str(keyword.arg) for keyword in node.keywords}


def table(room: Path) -> dict[str, set[str]]:
    """By reason: the facts in its sentence."""
    (given,) = (
        node.args[0]
        for node in ast.walk(ast.parse((room / "words.py").read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Sentences"
    )
    assert isinstance(given, ast.Dict)
    assert len({ast.literal_eval(key) for key in given.keys if key}) == len(given.keys), "a reason is worded once"
    sentences: dict[str, str] = ast.literal_eval(given)
    return {
        reason: {name.partition(".")[0] for _, name, _, _ in Formatter().parse(sentence) if name}
        for reason, sentence in sentences.items()
    }


@pytest.mark.parametrize("room", [path.parent for path in sorted(LIB.glob("*/words.py"))], ids=lambda room: room.name)
def test_every_reason_of_a_room_is_worded_with_its_facts(room: Path) -> None:
    worded = table(room)
    given = list(calls(room))
    assert [(reason, facts) for reason, facts in given if not worded.get(reason, {reason}) <= facts] == []
    assert {reason for reason, _ in given} == set(worded)
    assert [reason for reason in worded if len(reason.split()) > 4] == [], "a reason is a name, no sentence"


def test_a_refusal_keeps_its_facts_with_its_place_and_between_processes() -> None:
    error = RuleError(SAYS("no such tier", tier="cloud", costs="copies", known="host")).at("rank 0, t=1, fetch()", 7)
    for copy in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(copy.problem, Sentence)
        assert (copy.problem.reason, copy.problem.facts["tier"]) == ("no such tier", "cloud")
        assert (copy.place, copy.line, str(copy)) == (error.place, 7, f"{error.place}: {error.problem}")
