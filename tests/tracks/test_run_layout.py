"""`puzzles run` of a layout: real tensors on the engine, here and on MPI; predicted and measured bytes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from lib.layout import GraphPlan, propagate
from lib.layout.examples import embedding_and_head
from lib.layout.execution import Executed
from puzzles.tracks.layout import LAYOUT_PUZZLES
from puzzles.tracks.layout.show import CLOSE, run_plan, whole_values
from tests.support.commands import puzzles
from tests.support.mpi import mpiexec_or_skip
from tests.test_imports import ROOT

COLUMNS = 100
pytestmark = pytest.mark.usefixtures("in_an_empty_folder", "in_this_process")

SOLUTIONS = ROOT / "solutions" / "layout"
FFN = "def ffn(graph):\n    "


def run(source: str, slug: str, *options: str) -> Result:
    Path("mine.py").write_text(source)
    result = puzzles("run", "mine.py", slug, *options)
    return result


def sent(page: str) -> list[tuple[int, int]]:
    """Bytes sent and predicted, by device, as the page shows them."""
    rows = re.findall(r"^ +\d+ +([\d,]+) +([\d,]+) +(?:equal|DIFFERS)", page, re.MULTILINE)
    return [(int(a.replace(",", "")), int(b.replace(",", ""))) for a, b in rows]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("slug", LAYOUT_PUZZLES)
def test_every_reference_sends_its_target_in_bytes(slug: str):
    result = run((SOLUTIONS / f"{slug}.py").read_text(encoding="utf-8"), slug)
    assert result.exit_code == 0, result.output
    assert "device's" in result.stdout
    figures = sent(result.stdout)
    assert len(figures) == LAYOUT_PUZZLES[slug].graph().devices
    assert all(measured == predicted for measured, predicted in figures)
    assert sum(measured for measured, _ in figures) == LAYOUT_PUZZLES[slug].best


def test_a_plan_that_costs_too_much_runs_too_and_shows_who_pays():
    result = run(FFN + "graph.shard('relu', ((4, 2),))", "ffn")
    assert result.exit_code == 0
    for told in (
        "All 5 results equal a single device's, exactly.",
        "matmul2 pays 32,768 bytes (all-reduce)",
        "add1 -> relu pays 12,288 bytes (exchange)",
        "1 all_reduce, 2 receive, 2 send",
        "45,056 bytes moved; 45,056 were predicted.",
        "equal   28,864   equal",
        "A device holds at most 28,864 bytes at a time, when 'matmul2' reduces its output.",
    ):
        assert told in result.stdout


@pytest.mark.slow
def test_the_same_on_mpi():
    mpiexec_or_skip()
    source = FFN + "graph.shard('matmul2', ((8, 1), (1, 1)))"
    here, there = run(source, "ffn"), run(source, "ffn", "--on", "mpi")
    assert (there.exit_code, there.stdout) == (0, here.stdout.replace("inprocess", "mpi"))


REFUSED = [
    (FFN + "1 / 0", "ffn", (), "ffn was not run: line 2: ZeroDivisionError: division by zero"),
    (
        FFN + "graph.shard('relu', ((3, 1),))",
        "ffn",
        (),
        "ffn was not run: line 2: relu: the strategy ((3,1)) makes 3 parts",
    ),
    (FFN + "graph.strategies['relu'] = 5", "ffn", (), "the strategies that the graph was left with cannot be read"),
    ("def matmul(graph):\n    pass  # tried", "matmul", (), "matmul was not run: no operator is configured"),
    ("", "ffn", (), "mine.py has no function ffn; write 'def ffn(graph):'"),
    ("def ffn(graph:", "ffn", (), "ffn was not run: line 1: this is not valid Python"),
    (FFN + "pass", "ffn", ("-n", "4"), "ffn is laid out on 8 devices; leave out -n, or use -n 8"),
]


@pytest.mark.parametrize(("source", "slug", "options", "sentence"), REFUSED)
def test_what_cannot_be_run_is_reported_in_a_sentence(source, slug, options, sentence):
    result = run(source, slug, *options)
    assert (result.exit_code, sentence in result.output) == (1, True), result.output


def test_values_are_whole_small_and_of_the_size_that_was_counted():
    graph = embedding_and_head()
    values = whole_values(graph)
    assert {value.dtype.itemsize for value in values.values()} == {graph.itemsize}
    assert (values["tokens"].dtype.kind, values["tokens"].min() >= 0, values["tokens"].max() < 512) == ("i", True, True)
    assert all((value == np.round(value)).all() for value in values.values())


def test_a_run_with_another_number_or_another_byte_does_not_pass(monkeypatch: pytest.MonkeyPatch):
    plan = propagate(LAYOUT_PUZZLES["ffn"].graph())
    honest = run_plan(plan, "inprocess")
    assert honest.passed
    assert not replace(honest, sent=(honest.sent[0] - 1, *honest.sent[1:])).passed
    assert not replace(honest, peaks=(honest.peaks[0] + 4, *honest.peaks[1:])).passed
    on_engine = GraphPlan.on_engine

    def spoilt(self: GraphPlan, values, on=None) -> Executed:
        done = on_engine(self, values, on)
        for piece in done.pieces["add2"].values():
            piece += 1
        return done

    monkeypatch.setattr(GraphPlan, "on_engine", spoilt)
    assert run_plan(plan, "inprocess").error > CLOSE
    page = run(FFN + "pass  # tried", "ffn")
    assert (page.exit_code, "Tensors DIFFER" in page.stdout) == (1, True)
