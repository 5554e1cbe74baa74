"""Same work: equal programs and runs but for names; what a reference or a starter has does not count."""

from __future__ import annotations

import ast
import json
import re

import pytest
from click.testing import CliRunner

from puzzles.commands.main import main
from puzzles.course.same_work import BOTH, PROGRAM, RUN, CommonWork, same_work
from puzzles.grading.verdict import Graded, Verdict
from puzzles.sandbox.worker.source import work
from puzzles.tracks.schedule.fingerprint import fingerprint
from tests.support import course


def works(source: str, name: str = "basic") -> list[str]:
    return work(name, {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)})


def test_names_comments_and_annotations_do_not_count() -> None:
    source = course.solution("basic")
    digests = [line[:16] for line in works(source)]
    assert [line[:16] for line in works(course.renamed(source))] == digests
    assert [
        line[:16] for line in works(source.replace("(model: Model) -> Model", "(m)").replace("model", "m"))
    ] == digests
    assert works(course.own_work())[0] != digests[0]
    assert works(source.replace("model.loss", "model.forward"))[0] != digests[0], "what is called counts"
    assert works(source.replace("range(model.LAYERS)", "range(0, model.LAYERS)"))[0] != digests[0]


def test_helpers_count_and_can_have_any_name() -> None:
    one = "def basic(model):\n    return load(model)\ndef load(m):\n    return m.x + 1\ndef other():\n    pass\n"
    two = one.replace("load", "fetch").replace("def other():\n    pass\n", "")
    assert works(one)[0] == works(two)[0]
    assert works(one)[0] != works(one.replace("+ 1", "+ 2"))[0]
    assert [line[17:] for line in works(one)[1:]] == ["return load(model)", "return m.x + 1"]


def test_what_is_too_deep_to_compare_is_left_out() -> None:
    deep = "def basic(model):\n    return " + "-" * 900 + "1\n"
    assert works(deep) == [] or len(works(deep)) == 2


def graded(path: str, *work: str) -> Graded:
    return Graded(path, (Verdict("basic", "schedule", "passed", {}, work=work),))


A, B, C, D = ("a" * 16, "b" * 16, "c" * 16, "d" * 16)


def test_what_everybody_has_does_not_count() -> None:
    files = [graded("x", A, "run", f"{C} mine", f"{D} theirs"), graded("y", A, "run", f"{C} mine", f"{D} theirs"),
             graded("z", B, "run2", f"{C} mine"), graded("w", D, "run2")]  # fmt: skip
    one, two = same_work(files, {})
    assert ([g.path for g in one.submissions], one.what, one.lines) == (["x", "y"], BOTH, ("mine", "theirs"))
    assert ([g.path for g in two.submissions], two.what, two.lines) == (["z", "w"], RUN, ())
    known = CommonWork()
    known.add(("", "run2", f"{D} another"))
    (one,) = same_work(files, {"basic": known})
    assert one.lines == ("mine",)
    known.add((B, "run", f"{C} mine"))
    assert same_work(files, {"basic": known}) == [], "only lines of the reference are left"
    assert [one.what for one in same_work(files, {"basic": CommonWork(runs={"run", "run2"})})] == [PROGRAM]


def test_runs_that_differ_in_names_only_are_one() -> None:
    def trace(first: int, batch: int, line: int, key: str) -> str:
        ops = [{"op": "get_activation", "batches": [batch], "makes": [first], "line": line},
               {"op": "store", "where": "activations", "key": key, "uses": [first]},
               {"op": "get_activation", "batches": [1 - batch], "makes": [first + 9], "line": line}]  # fmt: skip
        return json.dumps({"layers": 1, "operations": [ops]})

    assert fingerprint(trace(0, 0, 3, "a")) == fingerprint(trace(5, 1, 8, "b"))
    assert fingerprint(trace(0, 0, 3, "a")) != fingerprint(trace(0, 0, 3, "a").replace("store", "delete"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[course.Known]]:
    """The page of a class with each kind of student twice."""
    folder = tmp_path_factory.mktemp("course")
    known = [
        one
        for one in course.students(2 * len(course.KINDS))
        if one.kind in ("right", "author", "copyist", "copy", "starter", "wrong")
    ]
    here = course.write(folder, known)
    words = ("grade", here, "--trust", "--puzzle", "basic", "--same-work", folder / "same.html", "-j", 2)
    result = CliRunner().invoke(main, [str(word) for word in (*words, "--roster", folder / "roster.csv")])
    assert isinstance(result.exception, SystemExit), result.exc_info
    return (folder / "same.html").read_text(), known


@pytest.mark.slow
def test_a_class_has_a_page_of_same_work(page: tuple[str, list[course.Known]]) -> None:
    text, known = page
    sections = [re.findall(r"<li>(.*?)(?=<li>|</ul>)", one.replace("\n", "")) for one in text.split("<section>")[1:]]
    by_kind = {kind: sorted(one.name for one in known if one.kind == kind) for kind in ("author", "copyist", "wrong")}
    wanted = [sorted(by_kind["author"] + by_kind["copyist"]), by_kind["wrong"]]
    assert sorted(map(sorted, sections)) == sorted(wanted), "the reference and the starter are nobody's"
    assert "while layer &lt; model.LAYERS:" in text
    assert "model.loss" not in text.partition("<section>")[2], "the reference has that line"


def test_renumbered_ranks_shards_and_microbatches_make_the_same_run() -> None:
    def trace(order: tuple[int, ...], to: int = 1) -> str:
        """A chain: each rank but the last of the chain sends to the next; `order[i]` is the rank at place i."""
        ranks: list[list[dict[str, object]]] = [[] for _ in order]
        for place, rank in enumerate(order):
            ops = ranks[rank]
            ops += [{"op": "load_weights", "shard": rank, "total": len(order), "makes": [0, 1]}]
            ops += [{"op": "get_activation", "batches": [rank], "makes": [2]}]
            if place < len(order) - 1:
                ops += [{"op": "pass_to", "to": order[place + to if place == 0 else place + 1], "uses": [2]}]
            ops += [{"op": "allreduce", "uses": [2], "group": sorted(order[:2])}] if place < 2 else []
        return json.dumps({"layers": 1, "operations": ranks})

    assert fingerprint(trace((0, 1, 2, 3))) == fingerprint(trace((3, 1, 0, 2))) == fingerprint(trace((2, 3, 1, 0)))
    assert fingerprint(trace((0, 1, 2, 3))) != fingerprint(trace((0, 1, 2, 3), to=2)), "whom a rank meets counts"
