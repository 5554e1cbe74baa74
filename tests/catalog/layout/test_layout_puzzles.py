"""The layout catalog: limits confirmed by the exact planner, solutions that meet them, verdicts, commands."""

from importlib import import_module
from pathlib import Path

import pytest

from lib.layout import bound, plan, propagate
from puzzles.catalog.layout import LayoutPuzzle
from puzzles.failure import Failure
from puzzles.judge.grader import grade_file
from puzzles.tracks import TRACKS
from puzzles.tracks.layout import LAYOUT_PUZZLES
from puzzles.tracks.layout.judge import completed
from tests.screens.texts import approved
from tests.support.commands import puzzles
from tests.support.layout_strategies import assert_same_program
from tests.test_imports import ROOT

pytestmark = pytest.mark.usefixtures("in_this_process")

SOLUTIONS = ROOT / "solutions" / "layout"

every_puzzle = pytest.mark.parametrize("puzzle", [pytest.param(p, id=slug) for slug, p in LAYOUT_PUZZLES.items()])


def verdict_on(tmp_path: Path, slug: str, source: str):
    path = tmp_path / "mine.py"
    path.write_text(source, encoding="utf-8")
    (verdict,) = grade_file(str(path), [LAYOUT_PUZZLES[slug]]).verdicts
    return verdict


@pytest.mark.sampled(2)
@every_puzzle
def test_nothing_moves_less_than_the_target_under_the_cap(puzzle: LayoutPuzzle):
    graph = puzzle.build() if puzzle.may_change else puzzle.graph()
    assert plan(graph, memory_cap=puzzle.memory_cap, scatter=False).bytes == puzzle.target


@pytest.mark.sampled(2)
@every_puzzle
def test_three_stars_are_the_fewest_bytes_that_move_under_the_cap(puzzle: LayoutPuzzle):
    graph = puzzle.build() if puzzle.may_change else puzzle.graph()
    assert plan(graph, memory_cap=puzzle.memory_cap).bytes == puzzle.best <= puzzle.target


@pytest.mark.sampled(1)
@every_puzzle
def test_what_unused_devices_and_parts_of_axes_would_save(puzzle: LayoutPuzzle):
    """On an axis for each prime factor of the devices, each used or not: no less, except where the puzzle says so."""
    graph = puzzle.build() if puzzle.may_change else puzzle.graph()
    found = plan(graph, memory_cap=puzzle.memory_cap, every_split=True, effort=2_000).bytes
    assert found == (puzzle.best if puzzle.least is None else puzzle.least)
    assert puzzle.least is None or puzzle.least < puzzle.best


@pytest.mark.sampled(2)
@every_puzzle
def test_dimensions_are_split_into_equal_parts_and_others_would_save_nothing(puzzle: LayoutPuzzle):
    assert puzzle.graph().uneven is False
    graph = puzzle.build() if puzzle.may_change else puzzle.graph()
    graph.uneven = True
    assert plan(graph, memory_cap=puzzle.memory_cap).bytes == puzzle.best


def test_an_uneven_strategy_of_a_player_is_refused(tmp_path):
    mine = "def attention(graph):\n    graph.shard('q', ((8, 1, 1), (1, 1)))\n"
    verdict = verdict_on(tmp_path, "attention", mine)
    assert verdict.status == "failed"
    approved("layout_puzzles", "an uneven strategy of a player is refused", verdict.message, "dimension 0 of 'x',")


def test_a_pass_says_what_was_left_out(tmp_path):
    def said(slug: str, stars: int) -> str:
        return TRACKS["layout"].words.record(LAYOUT_PUZZLES[slug], {}, stars)

    assert "devices unused" in said("ffn", 3)
    assert "163,840 bytes" in said("embedding_head", 3)
    missing = said("megatron_mlp", 2)
    assert "49,152" in missing
    assert not missing.startswith("Three stars")


def test_the_target_alone_is_two_stars(tmp_path):
    source = "def megatron_mlp(graph):\n    graph.shard('matmul1', ((2, 1), (1, 4)))"
    verdict = verdict_on(tmp_path, "megatron_mlp", source)
    assert (verdict.status, verdict.stars, verdict.figures["bytes"]) == ("passed", 2, 98_304)
    assert "49,152 for three stars" in LAYOUT_PUZZLES["megatron_mlp"].limits


@pytest.mark.sampled(4)
@every_puzzle
def test_the_reference_solution_passes_and_its_plan_runs(puzzle: LayoutPuzzle):
    (verdict,) = grade_file(str(SOLUTIONS / f"{puzzle.slug}.py"), [puzzle]).verdicts
    assert (verdict.status, verdict.stars, verdict.message) == ("passed", 3, "")
    assert verdict.figures["bytes"] == puzzle.best
    assert verdict.figures["memory"] <= puzzle.memory_cap
    graph = puzzle.graph()
    getattr(import_module(f"solutions.layout.{puzzle.slug}"), puzzle.slug)(graph)
    assert_same_program(propagate(graph))


FFN = "def ffn(graph):\n    "

VERDICTS = [
    ("boundary", "def boundary(graph):\n    graph.shard('matmul4', ((4, 2), (2, 1)), out=(8, 1))", "passed", None, ""),
    ("ffn", FFN + "1 / 0", "failed", "crash", "line 2: ZeroDivisionError: division by zero"),
    ("ffn", FFN + "exit()", "failed", "crash", "this called exit"),
    ("ffn", "def ffn():\n    pass", "failed", "crash", "ffn is called with one argument, the graph"),
    ("ffn", "async def ffn(graph):\n    pass", "failed", "crash", "ffn must be a plain function"),
    ("ffn", "ffn = 3", "failed", "crash", "ffn is of type int, not a function"),
    ("ffn", "def ffn(graph):\n    return {'matmul2': ((8, 1), (1, 1))}", "failed", "crash",
     "ffn returns a dict, which is not used; configure operators of the graph"),
    ("ffn", "def ffn(graph:\n    pass", "failed", "syntax", "this is not valid Python"),
    ("ffn", "def other(graph):\n    pass", "not_attempted", None, ""),
]  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("slug", "source", "status", "reason", "sentence"), VERDICTS)
def test_verdicts_name_the_cost_or_the_mistake(tmp_path, slug, source, status, reason, sentence):
    verdict = verdict_on(tmp_path, slug, source)
    assert (verdict.status, verdict.reason) == (status, reason)
    assert sentence in verdict.message
    assert "\n" not in verdict.message


@every_puzzle
def test_as_many_operators_as_are_allowed_are_configured(puzzle: LayoutPuzzle) -> None:
    free = [name for name in puzzle.graph().operators if name not in puzzle.given]
    for count in range(1, len(free) + 1):
        of_no_operator = ((99,),)
        refusal = completed(puzzle, dict.fromkeys(free[:count], (of_no_operator, None)))
        assert isinstance(refusal, Failure)
        assert (refusal.reason == "annotations") == (count > puzzle.annotations)


def test_only_strategies_are_taken_from_the_players_graph(tmp_path):
    tricks = FFN + "graph.itemsize = 0; graph.operators.clear(); graph.strategies['relu'] = ((2, 4),)"
    assert verdict_on(tmp_path, "ffn", tricks).figures["bytes"] == 98_304
    loop = FFN + "graph.strategies['nothing'] = ((1, 1),)"
    assert verdict_on(tmp_path, "ffn", loop).reason == "layout"


BOUNDARY = """\
def boundary(graph):
    graph.shard('front', ((8, 1, 1), (8, 1, 1)))
    graph.shard('matmul3', ((4, 1), (1, 2)))
    graph.shard('matmul4', ((4, 2), (2, 1)), out="""


@pytest.mark.slow
def test_an_out_strategy_reaches_the_judge(tmp_path):
    verdict = verdict_on(tmp_path, "boundary", BOUNDARY + "(8, 1))")
    assert (verdict.status, verdict.stars, verdict.figures["bytes"]) == ("passed", 3, 65_536)
    wrong = verdict_on(tmp_path, "boundary", BOUNDARY + "(2, 1))")
    assert "in parts (2, 1);" in wrong.message
    for forged in ("'ab'", "3", "(8, 'x')", "(8, 1, 1)", "(1 << 40, 1)"):
        source = f"{BOUNDARY}(8, 1))\n    graph.outs['matmul4'] = {forged}"
        assert verdict_on(tmp_path, "boundary", source).reason == "layout"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.mark.slow
def test_drawing_a_plan(here: Path):
    (here / "mine.py").write_text(FFN + "graph.shard('relu', ((8, 1),))")
    assert puzzles("draw", "mine.py", "ffn").stdout == "Wrote ffn.svg.\n"
    assert "12,288 bytes" in (here / "ffn.svg").read_text()
    refused = puzzles("draw", "mine.py", "ffn", "-o", "a.json").stderr
    assert (".json" in refused, "use .svg, .png or" in refused) == (True, True)
    shown = puzzles("draw", "mine.py", "ffn", "--text").stdout
    assert "12,288 bytes\nrelu: relu" in shown
    narrow = puzzles("draw", "mine.py", "ffn", "--text", "--width", "40").stdout
    both = [text.partition("Who holds what")[0].split() for text in (shown, narrow)]
    assert both[0] == both[1], "lines are not cut"
    assert puzzles("draw", "mine.py", "ffn", "-o", "ffn.txt").stdout == "Wrote ffn.txt.\n"
    assert (here / "ffn.txt").read_text() == shown
    assert puzzles("draw", "mine.py", "ffn", "-o", "ffn.html").stdout == "Wrote ffn.html.\n"
    page = (here / "ffn.html").read_text()
    assert ("<svg" in page, "add1 -&gt; relu: all-to-all" in page) == (True, True)
    assert "cannot write no/ffn.html: no" in puzzles("draw", "mine.py", "ffn", "-o", "no/ffn.html").stderr
    assert "mine.py has no function" in puzzles("draw", "mine.py", "matmul").stderr
    assert "cannot write no/ffn.svg: no" in puzzles("draw", "mine.py", "ffn", "-o", "no/ffn.svg").stderr
    puzzles("draw", "mine.py", "ffn", "--dark", "-o", "dark.svg", code=0)
    assert (here / "dark.svg").read_text() != (here / "ffn.svg").read_text()
    for wrong in ("1 / 0", "graph.strategies['relu'] = 5"):
        (here / "mine.py").write_text(FFN + wrong)
        result = puzzles("draw", "mine.py", "ffn")
        assert (result.exit_code, result.stderr.startswith("ffn failed: ")) == (1, True)


def test_the_figures_in_the_statement_of_zero_or_tensor_are_measured():
    from lib.layout import training
    from lib.layout.examples import megatron_mlp

    statement = LAYOUT_PUZZLES["zero_or_tensor"].statement
    columns = {"matmul1": ((1, 1), (1, 8)), "matmul2": ((1, 8), (8, 1))}
    tokens = {"matmul1": ((8, 1), (1, 1)), "matmul2": ((8, 1), (1, 1))}
    for size in (64, 1024, 4096):
        for strategies in (columns, tokens):
            step = training(megatron_mlp(devices=8, tokens=size, width=64))
            for name, strategy in strategies.items():
                step.shard(name, strategy)
            assert f"{propagate(step).bytes:,}" in statement


def test_every_statement_shows_what_is_counted(here: Path):
    assert "every operator's output" in " ".join(puzzles("show", "ffn").stdout.split())
    assert "activations that backward uses" in " ".join(puzzles("show", "train_ffn").stdout.split())


def test_the_move_of_the_warning_is_an_all_to_all_among_all_devices():
    """The figures of the statement, and what the texts claim of the bound."""
    puzzle = LAYOUT_PUZZLES["rematerialization"]
    moved = {}
    for name, strategy in {"rule": None, "all": (1, 1, 1), "axes": (2, 4, 1), "once": (1, 8, 1)}.items():
        graph = puzzle.graph()
        if strategy:
            graph.shard("p", (strategy,))
        moved[name] = propagate(graph).bytes
    assert moved == {"rule": 57_344, "all": 114_688, "axes": 20_480, "once": 14_336}
    assert all(f"{moved[name]:,}" in puzzle.statement for name in ("rule", "all", "axes"))
    found = propagate(graph)
    edge = next(edge for edge in found.edges if edge.bytes)
    (step,) = found.redistribution(edge).steps
    assert step.traffic().tolist() == [[64 * (a != b) for b in range(8)] for a in range(8)]
    assert edge.bytes == int(bound(edge.source, edge.target).sum()) * 4 == 8 * 1_792
    assert edge.source.tensor_map == ((1,), (), (0,)), "PartitionSpec('y', None, 'x')"
