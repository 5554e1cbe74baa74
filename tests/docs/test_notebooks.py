"""The notebooks: built the same each time, equal to the catalog; they run, and figures in their text are measured."""

import ast
import asyncio
import json
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from types import ModuleType, SimpleNamespace
from typing import Any

import nbformat
import pytest
from click.testing import CliRunner

import lib
from docs.generate import field
from lib import (
    COSTS,
    HIDDEN,
    LENGTH,
    Activation,
    Report,
    Setting,
    Weight,
    WeightGrad,
    referee,
    run,
)
from lib.ledger.costs import CLASSIC, elements_sent
from lib.planning import Split
from puzzles import version
from puzzles.catalog.content import Chapter
from puzzles.catalog.path import PATH
from puzzles.catalog.schedule import CHAPTERS, CLASSICS, PUZZLES
from puzzles.cli.main import main
from puzzles.failure import Failure
from puzzles.player import authoring
from puzzles.player.authoring import FULL, INK, MARKER, SOURCES, books, collective_svg
from puzzles.screens.html import rendered
from puzzles.tracks import TRACKS
from puzzles.tracks.plan import PLAN_PUZZLES
from puzzles.tracks.plan.judge import score_split
from puzzles.version import VERSION
from solutions.ring_context import ring_context
from tests import support
from tests.support.kernel import ROOT
from tests.support.solved import reference_of
from tests.support.unmeasured_figures import Fact, unmeasured, wrong

# --- The notebooks: built the same each time, equal to the catalog, and they run from top to bottom ---


README = (ROOT / "README.md").read_text(encoding="utf-8")
MEGABYTE = 1_000_000
WITH_PICTURE = 200_000
"""Bytes of a solved puzzle with its picture, at most: a chapter of nine has more than a megabyte."""
SECONDS = 90
"""In which all of them run, those of players and the solved ones."""
CLASSIC_BOOK = "01_puzzles.ipynb"
JOBS_BOOK = "10_real_jobs.ipynb"
CHAPTER_OF = {CLASSIC_BOOK: CLASSICS} | {
    f"{path.stem}.ipynb": chapter for chapter in CHAPTERS[1:] for path in SOURCES.glob(f"[0-9]*_{chapter.name}.py")
}
"""By notebook: the chapter whose puzzles it has."""
both = pytest.mark.parametrize("solved", [False, True], ids=["player", "solved"])


def cells_of(text: str) -> dict[str, Any]:
    return {cell["id"]: cell for cell in json.loads(text)["cells"]}


# --- How they are made ---


@pytest.mark.slow
@pytest.mark.sampled(1)
@both
def test_they_are_the_same_bytes_each_time_and_valid_and_without_outputs(solved: bool) -> None:
    made = books(solved)
    assert {*(chapter.name for chapter in CHAPTER_OF.values())} == {chapter.name for chapter in CHAPTERS}
    assert {"00_tour.ipynb", *CHAPTER_OF} <= {book.file for book in made}
    assert made == books(solved)
    for book in made:
        notebook = nbformat.reads(book.text, as_version=4)
        nbformat.validate(notebook)
        assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in notebook.cells)
        assert len(cells_of(book.text)) == len(notebook.cells)
        assert not any(MARKER.search(cell.source) or "# %" in cell.source for cell in notebook.cells)


@pytest.mark.sampled(1)
@both
def test_statement_gap_target_and_solution_are_those_of_the_catalog(solved: bool) -> None:
    of_books = {book.file: cells_of(book.text) for book in books(solved)}
    cells = {name: cell for of_book in of_books.values() for name, cell in of_book.items()}
    puzzles = {file: chapter.slugs for file, chapter in CHAPTER_OF.items()} | {JOBS_BOOK: PLAN_PUZZLES}
    for file, slugs in puzzles.items():
        plays = [name for name in of_books[file] if name.endswith("-play")]
        assert plays == [f"{slug}-play" for slug in slugs]
    for slug, puzzle in PUZZLES.items():
        task, code = "".join(cells[f"{slug}-task"]["source"]), "".join(cells[f"{slug}-code"]["source"])
        assert puzzle.statement.strip() in task
        assert f"| {puzzle.goal.time_text} {puzzle.goal.costs.time_unit} | {puzzle.goal.memory_text} elements" in task
        assert ("data:image/svg+xml" in task) == (puzzle.sketch is not None)
        reference = (ROOT / "solutions" / f"{slug}.py").read_text(encoding="utf-8")
        assert code.strip() in (reference if solved else puzzle.starter)
        assert f"def {slug}(model: Model)" in code
        hints, background = "".join(cells[f"{slug}-hints"]["source"]), "".join(cells[f"{slug}-background"]["source"])
        assert all(hint in hints for hint in puzzle.hints)
        assert puzzle.in_practice.strip() in background
        assert all(source.title in background for source in puzzle.sources)


@pytest.mark.slow
def test_the_player_version_gives_no_solution_away() -> None:
    for empty, full in zip(books(), books(solved=True), strict=True):
        player, solved = cells_of(empty.text), cells_of(full.text)
        slugs = CHAPTER_OF[empty.file].slugs if empty.file in CHAPTER_OF else ()
        slugs = [*slugs, *(PLAN_PUZZLES if empty.file == JOBS_BOOK else ())]
        assert list(player) == list(solved)
        assert {name for name in player if player[name] != solved[name]} == {f"{slug}-code" for slug in slugs}


def test_the_sources_are_in_percent_format_and_shadow_no_package() -> None:
    for path in SOURCES.glob("*.py"):
        assert "format_name: percent" in path.read_text(encoding="utf-8")
        assert find_spec(path.stem) is None
    assert not list(SOURCES.glob("*.ipynb")) or "/notebooks/*.ipynb" in (ROOT / ".gitignore").read_text()


def set_up(place: Path, monkeypatch: pytest.MonkeyPatch, installed: bool = False) -> list[tuple[str, str]]:
    """Arguments that the first cell, run in a folder, gives to pip."""
    asked: list[tuple[str, str]] = []
    shell = SimpleNamespace(run_line_magic=lambda name, line: asked.append((name, line)))
    code = authoring.setup()
    monkeypatch.chdir(place)
    monkeypatch.setattr("sys.path", [])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: "a spec" if installed else None)
    monkeypatch.setitem(sys.modules, "training_puzzles", ModuleType("training_puzzles"))
    cell = compile(code, "setup", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    asyncio.run(eval(cell, {"get_ipython": lambda: shell}))
    return asked


def test_the_setup_does_nothing_where_the_puzzles_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder := tmp_path / "clone" / "notebooks").mkdir(parents=True)
    (tmp_path / "clone" / "puzzles" / "catalog").mkdir(parents=True)
    assert set_up(folder, monkeypatch) == []
    assert set_up(tmp_path, monkeypatch, installed=True) == []


def test_the_setup_installs_the_wheel_next_to_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / f"training_puzzles-{VERSION}-py3-none-any.whl"
    wheel.touch()
    (tmp_path / "training_puzzles-0.0.1-py3-none-any.whl").touch()
    assert set_up(tmp_path, monkeypatch) == [("pip", f"install --quiet '{wheel}'")]


def test_in_jupyterlite_the_setup_installs_the_wheel_without_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / f"training_puzzles-{VERSION}-py3-none-any.whl"
    wheel.touch()
    installed: list[str] = []

    async def install(name: str) -> None:
        installed.append(name)

    piplite = ModuleType("piplite")
    piplite.install = install  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "piplite", piplite)
    monkeypatch.setattr("sys.platform", "emscripten")
    assert set_up(tmp_path, monkeypatch) == []
    assert installed == [f"emfs:{wheel}"]


def test_the_setup_installs_the_tested_version_once_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "_addresses", lambda: {"Source": "https://github.com/acme/x"})
    assert set_up(tmp_path, monkeypatch) == [("pip", f"install --quiet git+https://github.com/acme/x@v{VERSION}")]


def test_the_setup_installs_nothing_from_a_name_that_anybody_could_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "_addresses", dict)
    with pytest.raises(ImportError, match=f"put training_puzzles-{VERSION}-py3-none-any.whl"):
        set_up(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("name", "filled_dots", "strips"),
    [("allreduce", 4 + 16, 8), ("allgather", 0, 4 + 16), ("scatterreduce", 4 + 16, 8)],
)
def test_a_collective_is_drawn_as_the_runtime_computes_it(name: str, filled_dots: int, strips: int) -> None:
    """Dots: one batch each before, four each after. Strips: shards, or one for a whole."""
    drawn = collective_svg(name)
    assert drawn.count(f'fill="{INK}"/>') == filled_dots
    assert drawn.count(f'fill="{FULL}"/>') == strips


@pytest.mark.sampled(9)
@pytest.mark.parametrize("slug", [slug for slug, puzzle in PUZZLES.items() if puzzle.sketch and puzzle.sketch.shares])
def test_a_sketch_shows_every_rank_and_what_the_reference_loads(slug: str) -> None:
    """As many filled boxes as there are pairs of a rank and a layer whose weight, or a shard of it, it loads."""
    puzzle = PUZZLES[slug]
    goal = puzzle.goal
    outcome = lib.run(reference_of(slug), *goal.size, setting=goal.setting)
    loads = [{op.layer for op in ops if op.name == "load_weights"} for ops in outcome.trace.ranks]
    sketch, drawn = puzzle.sketch, TRACKS["schedule"].show.sketch(puzzle, rendered)
    size = puzzle.goal.size
    assert sketch is not None
    assert [{layer for layer in range(size.layers) if sketch.part(rank, layer)} for rank in range(size.ranks)] == loads
    assert [word in drawn for word in (f"rank {size.ranks - 1}<", "rank 0<")] == [True, True]
    assert f"rank {size.ranks}<" not in drawn


# --- The command ---


def wrote(*words: str) -> Any:
    return CliRunner().invoke(main, ["notebook", *words])


@pytest.mark.slow
def test_the_command_writes_fresh_copies_and_never_over_work(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    assert wrote(str(folder)).exit_code == 0
    for book in books():
        assert (folder / book.file).read_text(encoding="utf-8") == book.text
    (folder / "01_puzzles.ipynb").write_text("my work")
    (folder / "00_tour.ipynb").unlink()
    refused = wrote(str(folder))
    assert refused.exit_code == 2
    assert all(word in refused.output for word in ("01_puzzles.ipynb", "exist already", "--force"))
    assert not (folder / "00_tour.ipynb").exists()
    assert (folder / "01_puzzles.ipynb").read_text() == "my work"
    assert wrote(str(folder), "--force", "--solved").exit_code == 0
    assert (folder / "01_puzzles.ipynb").read_text(encoding="utf-8") == books(solved=True)[1].text


@pytest.mark.slow
def test_the_message_names_a_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = wrote(str(tmp_path / "file" / "folder"))
    assert refused.exit_code == 2
    assert "cannot write" in refused.output


@pytest.mark.slow
def test_the_grader_reads_a_notebook(tmp_path: Path) -> None:
    path = tmp_path / "my.ipynb"
    path.write_text(books(solved=True)[1].text, encoding="utf-8")
    graded = CliRunner().invoke(main, ["grade", str(path), "--json"])
    results = json.loads(graded.output)["files"][0]["results"]
    assert [(result["puzzle"], result["status"]) for result in results] == [(slug, "passed") for slug in CLASSICS.slugs]


# --- How they run ---


@pytest.fixture(scope="module", params=[pytest.param(False, marks=pytest.mark.slow), True], ids=["player", "solved"])
def executed(request: pytest.FixtureRequest) -> tuple[bool, list[Any]]:
    """The tour and the classics after a run from top to bottom; an exception in a cell would end it."""
    start = perf_counter()
    done = [run_through(book.text) for book in books(request.param) if book.file in ("00_tour.ipynb", CLASSIC_BOOK)]
    assert perf_counter() - start < SECONDS / 2
    return request.param, done


def run_through(text: str) -> Any:
    """A notebook after a run in a fresh kernel."""
    from nbclient import NotebookClient  # which takes long to import

    notebook = nbformat.reads(text, as_version=4)
    options = {"resources": {"metadata": {"path": str(ROOT)}}, "extra_arguments": ["--Application.log_level=50"]}
    NotebookClient(notebook, timeout=45, kernel_name="python3", **options).execute()
    return notebook


def outputs(notebook: Any, cell: str) -> list[Any]:
    return next(c.outputs for c in notebook.cells if c.id == cell)


@pytest.mark.slow
def test_every_puzzle_is_passed_or_not_attempted(executed: tuple[bool, list[Any]]) -> None:
    solved, (_, book) = executed
    require_played(book, CLASSICS, solved)


@pytest.mark.slow
def test_the_second_notebook_plays_every_step_of_the_field() -> None:
    """With the reader's prediction next to the figure, once one is given."""
    text = next(book.text for book in books() if book.file == "02_field.ipynb")
    book = run_through(text.replace("measure(ddp, time=..., sent=...)", "measure(ddp, time=T / N, sent=W)"))
    shown = [out for cell in book.cells for out in cell.get("outputs", ())]
    printed = "".join(out.text for out in shown if out.get("name") == "stdout")
    for label, report in ((label, report) for step in range(10) for label, report in field.measured(step).items()):
        if label.replace("`", "").removesuffix(", 8 devices") in book_runs(text):
            assert f"{report.makespan:,.0f}" in printed, label
            assert f"{report.peak.memory:,}" in printed, label
    assert "predicted 4,126: -19.4%" in printed
    assert "predicted 134,217,728: -33.3%" in printed
    pages = [out.data["text/html"] for out in shown if "text/html" in out.get("data", {})]
    assert len(pages) == 12
    assert 'data-status="failed"' in pages[-1]
    assert not [out for out in shown if out.get("name") == "stderr"]
    assert len(nbformat.writes(book).encode()) < MEGABYTE


def book_runs(text: str) -> set[str]:
    """The reference solutions that a notebook measures."""
    return set(re.findall(r"from solutions\.(\w+) import", text))


@pytest.mark.slow
@both
@pytest.mark.parametrize("file", [file for file, chapter in CHAPTER_OF.items() if chapter is not CLASSICS])
def test_a_later_chapter_runs_too(file: str, solved: bool) -> None:
    notebook = run_through(next(book.text for book in books(solved) if book.file == file))
    require_played(notebook, CHAPTER_OF[file], solved)
    assert not [out for cell in notebook.cells for out in cell.get("outputs", ()) if out.get("name") == "stderr"]
    assert len(nbformat.writes(notebook).encode()) < max(MEGABYTE, WITH_PICTURE * len(CHAPTER_OF[file].slugs))


def require_played(book: Any, chapter: Chapter, solved: bool) -> None:
    expected = "Solved!" if solved else "Not attempted"
    for slug in chapter.slugs:
        (shown,) = outputs(book, f"{slug}-play")
        assert f"{slug}: {expected}" in shown.data["text/plain"]
        assert f'data-status="{"passed" if solved else "not_attempted"}"' in shown.data["text/html"]
        assert ("<svg" in shown.data["text/html"]) == solved


@pytest.mark.slow
def test_nothing_is_written_to_stderr(executed: tuple[bool, list[Any]]) -> None:
    for notebook in executed[1]:
        said = [out for cell in notebook.cells for out in cell.get("outputs", ()) if out.get("name") == "stderr"]
        assert said == []


@pytest.mark.slow
def test_each_is_under_a_megabyte(executed: tuple[bool, list[Any]]) -> None:
    for notebook in executed[1]:
        assert len(nbformat.writes(notebook).encode()) < MEGABYTE


@pytest.mark.slow
def test_the_tour_shows_what_its_words_promise(executed: tuple[bool, list[Any]]) -> None:
    tour = executed[1][0]
    printed = "".join(out.text for c in tour.cells for out in c.get("outputs", ()) if out.output_type == "stream")
    for words in (
        "3,145,728 elements before, 1,572,864 after",
        "update(layer=0): this gradient covers only batches 2, 3 of 4",
        "equal: True",
        "reduce_all      1,572,864 bytes from each rank",
        "in_two_halves   1,572,864 bytes from each rank",
        "rank 1 hears: How much is the fish?",
        "nobody can move: ranks 0, 1, 3 wait in allreduce(layer=0)",
    ):
        assert words in printed
    shown = [out.get("data", {}) for c in tour.cells for out in c.get("outputs", ())]
    assert sum(data.get("text/html", "").startswith("<svg") for data in shown) >= 10
    assert not any("image/svg+xml" in data for data in shown)


# --- Figures in the text of the notebooks: each one is measured by a test ---


NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CLASSIC_OF = {classic.slug: classic for classic in support.CLASSICS}


@cache
def words(name: str) -> str:
    """The markdown of a notebook's source, as one line."""
    text = (NOTEBOOKS / f"{name}.py").read_text(encoding="utf-8")
    cells = re.split(r"^# %%", text, flags=re.MULTILINE)
    shown = [cell.partition("\n")[2] for cell in cells if cell.startswith(" [markdown]")]
    return " ".join(" ".join(line.removeprefix("#").strip() for line in cell.splitlines()) for cell in shown)


@cache
def score(slug: str, layers: int = 0, batches: int = 0, ranks: int = 0) -> Report:
    """The referee's report on a reference solution, at its own size or at another."""
    classic = CLASSIC_OF[slug]
    size = (layers or classic.size.layers, batches or classic.size.batches, ranks or classic.size.ranks)
    return referee(run(classic.solution, *size).trace)


def peak(slug: str, *size: int) -> int:
    return score(slug, *size).peak.memory


def sent(slug: str, *size: int) -> int:
    """Bytes sent by the rank that sends the most."""
    return max(rank.bytes_sent for rank in score(slug, *size).ranks)


def idle(slug: str, *size: int) -> str:
    return f"{score(slug, *size).bubble:.0%}"


def at_the_turn(slug: str) -> float:
    """The share of activations and their gradients in the peak of a schedule on one rank, in fifths."""
    model_and_states = 2 * CLASSIC_OF[slug].size.layers * CLASSIC.weight
    return 5 * (peak(slug) - model_and_states) / peak(slug)


GRADIENT_BYTES = 2 * CLASSIC.weight * 4
"""Of the two layers of puzzle 2."""

TOUR: list[Fact] = [
    "two layers, and the step is made of four microbatches",
    "the output of layer 0 is `activations[1]`",
    ("a square matrix of 512 x 512", HIDDEN == 512),
    f"its weight has {Weight(0, 2, 0).memory():,} elements",
    "for batches 2 and 3",
    "Half of the slot is filled, because two of the four",
    (f"One batch of activations takes {Activation(0, 2, {0}, 4).memory():,} elements", LENGTH == 256),
    "These two have seen batches 2 and 3",
    "**F0** is the forward of layer 0",
    "**B0** is its backward",
    "**U0** is its update",
    "del activations[0]",
    f"| `forward`, `backward` | {CLASSIC.duration('forward') / 10:g} step for each batch |",
    f"| `update` | {CLASSIC.duration('update') / 10:g} steps |",
    f"| a collective | {CLASSIC.duration('allreduce') / 10:g} steps, from when the last rank has joined |",
    f"| `pass_to`, `receive` | {CLASSIC.duration('pass_to') / 10:g} steps for each value |",
    (
        "with four ranks, the bytes of the two halves add up to those of the whole",
        elements_sent("allreduce", 1024, 4)
        == elements_sent("scatterreduce", 1024, 4) + elements_sent("allgather", 256, 4),
    ),
    ("Open **01_puzzles**", (NOTEBOOKS / "01_puzzles.py").exists()),
]


def met(slug: str, *timesteps: float) -> list[bool]:
    """Which of these meet a puzzle's target for time."""
    return [PUZZLES[slug].goal.meets_time(steps) for steps in timesteps]


@cache
def puzzle_book() -> list[Fact]:
    return [
        ("Eight puzzles", len(CLASSICS.slugs) == 8),
        (
            "`< 67` timesteps is met by 66.9, and not by 67",
            met("pipeline", score("pipeline").timesteps, 66.9, 67) == [1, 1, 0],
        ),
        ("**00_tour**", (NOTEBOOKS / "00_tour.py").exists()),
        ("three fifths of the memory are activations and their gradients", at_the_turn("basic") == 3),
        ("just two layers and four batches", CLASSIC_OF["basic"].size == (2, 4, 1)),
        f"sixteen batches the same schedule needs {peak('basic', 2, 16) / peak('basic'):g} times the memory",
        ("The peak is a quarter lower than before", peak("grad_accum") == 3 / 4 * peak("basic")),
        (f"in the same {score('basic').timesteps:g} steps", score("grad_accum").timesteps == score("basic").timesteps),
        f"with sixteen batches it is still {peak('grad_accum', 2, 16):,} elements",
        (f"Four devices finish in {score('ddp').timesteps:g} steps what took one device {score('basic').timesteps:g}"),
        f"so {score('basic').timesteps / score('ddp').timesteps:.1f} times as fast",
        f"Each rank sends {sent('ddp'):,} bytes, {sent('ddp') / GRADIENT_BYTES:g} times the size of the gradient",
        ("hardly grows with the number of ranks", sent("ddp", 2, 64, 64) < 2 * GRADIENT_BYTES),
        ("four ranks keep four copies of every weight", score("ddp").copies == (4, 4)),
        ("this model of six layers", CLASSIC_OF["wsdp"].size.layers == 6),
        f"would need {peak('ddp', 6):,} elements on every rank; this needs {peak('wsdp'):,}",
        ("each rank sends twice the bytes", sent("wsdp") == 2 * sent("ddp", 6)),
        ("the next puzzle costs nothing and saves more", score("fsdp").timesteps == score("wsdp").timesteps),
        ("saves more", sent("fsdp") < sent("wsdp") and peak("fsdp") < peak("wsdp")),
        f"falls from {peak('ddp', 6):,} to {peak('fsdp'):,} elements",
        f"each rank sends {sent('fsdp') / sent('ddp', 6):g} times the bytes",
        f"{idle('pipeline')} of the time is idle",
        f"A rank in the middle sends {sent('pipeline'):,} bytes",
        f"`fsdp` on this model and these ranks would send {sent('fsdp', 8):,}",
        f"With four microbatches {idle('gpipe')} of the time is idle",
        f"with sixteen it is {idle('gpipe', 8, 16)}, and with thirty-two {idle('gpipe', 8, 32)}",
        ("Memory grows with the number of microbatches", peak("gpipe", 8, 16) > peak("gpipe")),
        "one backward (1F1B)",
        (
            "less memory in less time? One is known",
            any(r.dominates(33.2, 4_194_303) for r in PUZZLES["gpipe"].goal.records),
        ),
        (f"{peak('pipeline_fsdp'):,} elements on a rank, less than half", 2 * peak("pipeline_fsdp") < peak("fsdp")),
        ("four layers and not six", CLASSIC_OF["pipeline_fsdp"].size.layers == 4),
        f"But {idle('pipeline_fsdp')} of the time is idle",
        ("twelve to thirteen million bytes", all(12e6 < r.bytes_sent < 13e6 for r in score("pipeline_fsdp").ranks)),
    ]


# --- From one device to a cluster ---


@cache
def on_the_field() -> dict[str, Report]:
    """The runs of docs/field.md, by their labels there."""
    return {
        label.replace("`", ""): report for step in range(len(PATH)) for label, report in field.measured(step).items()
    }


def clock(label: str) -> str:
    return f"{on_the_field()[label].makespan:,.0f}"


def most(label: str) -> str:
    """The peak, in millions of elements."""
    return f"{field.millions(on_the_field()[label].peak.memory)} M"


def waits(label: str) -> str:
    return f"{on_the_field()[label].bubble:.1%}"


COST = COSTS[field.MODEL]
L, B, N, W, A = field.LAYERS, field.BATCHES, field.RANKS, field.LAYERS * COST.weight, COST.activation
ALONE = 6 * W * B * COST.length / COST.flops_per_tick
SUM = COST.transfer("allreduce", 1, COST.weight, range(N))
SUM_OF_TWO = COST.transfer("allreduce", 1, 2 * COST.weight, range(N))
SUM_OF_PARTS = COST.transfer("allreduce", 1, B * A, range(N))
AROUND = Setting("context", layer="attention", shares=8)


@cache
def around() -> Report:
    """Ring attention, as in the notebook."""
    return referee(run(ring_context, 2, 1, N, setting=AROUND).trace)


def gib(bytes_each: int) -> str:
    """What so many bytes for each parameter of Llama 3 8B take."""
    return f"{bytes_each * 8.03e9 / 2**30:.1f}"


@cache
def too_large() -> str:
    """What the puzzle says of a split that gives everything to each replica."""
    judged = score_split(PLAN_PUZZLES["llama_8b_16"], {"split": asdict(Split(dp=16, zero=0)), "prediction": None})
    assert isinstance(judged, Failure)
    return judged.sentence


PARTS = (("optimizer states", 12), ("gradients", 4), ("weights", 2))


@cache
def cluster_facts() -> list[Fact]:
    alone = float(on_the_field()["basic"].makespan)
    return [
        "H100-like GPUs",
        ("One model, ten steps, three costs", len(PATH) == 10),
        (
            "The model has 8 layers. Each is a matrix of 4,096 x 4,096, so it has 16,777,216 weights",
            COST.weight == 4096**2,
        ),
        ("A step trains on 4 microbatches of 2,048 tokens", COST.length == 2048),
        "A forward takes 2 operations for each weight and token, a backward 4",
        f"6 W B 2,048 / FLOPS = {ALONE:,.0f} us",
        f"shows {clock('basic')}",
        "Memory is 2 W + L B A, and 4 A more for the output of the last layer",
        (f"{on_the_field()['basic'].peak.memory:,} elements", 2 * W + L * B * A + 4 * A == 570_425_344),
        ("3 W + L A, and A more for the last output", on_the_field()["grad_accum"].peak.memory == 3 * W + L * A + A),
        "With 4 microbatches this saves little. With 64",
        ("2(N-1)/N times the elements of a gradient", on_the_field()["ddp"].traffic == 2 * (N - 1) * W // N),
        (
            f"A quarter of T is {alone / 4:,.0f} us. Each of 8 all-reduces sends 1.5 gradients, which takes 112 us",
            SUM == 124,
        ),
        f"has 6 hops: {SUM} us. Together that is {alone / 4 + 8 * SUM:,.0f} us; the clock shows {clock('ddp')}",
        f"Devices wait for {waits('ddp')} of the time",
        "Each of the three sends (N-1)/N times the elements of a layer",
        (f"It sends 3(N-1)/N W = {on_the_field()['fsdp'].traffic:,}", on_the_field()["fsdp"].traffic == 9 * W / 4),
        (
            f"Memory is 2 W/N + L A + 2 W/L = {(2 * W / N + L * A + 2 * W / L) / 1e6:.1f} M by the formula and "
            f"{most('fsdp')} measured, where data parallelism needed {most('ddp')}"
        ),
        f"a sixth of T: {alone * 7 / 6:,.0f} us. The clock shows {clock('checkpoint')}",
        f"from {most('basic')} to {most('checkpoint')}",
        "at most 4/3 T",
        "Each device holds 2 of the 8 layers",
        "a share of (N-1)/(B+N-1) of the time is idle",
        f"T/N (B+N-1)/B = {alone / N * 7 / 4:,.0f} us",
        f"the clock shows {clock('GPipe')} us, and {waits('GPipe')} are idle where the formula says 3/7",
        f"which is {3 / 7:.1%}",
        "In 1F1B",
        "memory of 1F1B with 16 microbatches? Its weights, states and gradients are 3 W/N",
        f"The formulas say {alone * 19 / 16:,.0f} us and 3 W/N + L/N N A = {(3 * W / N + L * A) / 1e6:.1f} M",
        f"measured are {clock('1F1B, 16 microbatches')} us and {most('1F1B, 16 microbatches')}",
        f"needs {most('GPipe, 16 microbatches')}. ZB-H1 cuts backward in two",
        f"for less than {waits('1F1B, 16 microbatches')} of the time",
        (f"It is idle for {waits('ZB-H1, 16 microbatches')}. `lib.pipelines` has more orders: `interleaved`, `zb_h2`"),
        "`1F0` is the forward of stage 1 for microbatch 0. This one is 1F1B",
        "In step 2 every device computed, then waited",
        ("It takes 2 x 112 us and 6 hops", SUM_OF_TWO == 236),
        (
            f"{alone / 4:,.0f} + {SUM_OF_TWO} us = {alone / 4 + SUM_OF_TWO:,.0f} us. The clock shows "
            f"{clock('ddp_overlap')}, where step 2 took {clock('ddp')}"
        ),
        "send for 4 microbatches",
        (
            f"Each of 15 all-reduces sends 2(N-1)/N B A elements, {field.millions(15 * 6 * A)} M together, and takes "
            f"{SUM_OF_PARTS} us",
            on_the_field()["tensor_parallel"].traffic == 15 * 2 * (N - 1) * B * A // N,
        ),
        f"that is {alone / 4 + 15 * SUM_OF_PARTS:,.0f} us; the clock shows {clock('tensor_parallel')}",
        "2 A/N for each microbatch, pass around the ring in N-1 hops",
        "all-reduced as in step 2",
        (
            f"2 layers of {AROUND.costs.weight:,} weights, and one long sequence, whose activation has "
            f"{AROUND.costs.activation:,} elements"
        ),
        (
            f"6(N-1)/N L A for keys, values and their gradients, and 2(N-1)/N W for the weight gradients: "
            f"{around().traffic:,} elements",
            around().traffic == 6 * 3 * 2 * AROUND.costs.activation // 4 + 2 * 3 * 2 * AROUND.costs.weight // 4,
        ),
        f"Only {around().bubble:.1%} of the time is idle",
        "In an all-to-all it sends (N-1)/N of what it has",
        f"are 4(N-1)/N L B A/N = {field.millions(3 * L * B * A // 4)} M",
        f"sends {field.millions(on_the_field()['expert_parallel'].traffic)} M",
        "2 replicas, each of 2 stages, each on 2 devices",
        "each replica pipelines 2 microbatches through 2 stages",
        f"T/8 = {alone / 8:,.0f} us",
        f"the clock shows {clock('three_d, 8 devices')} us, with {waits('three_d, 8 devices')} idle",
        "Take Llama 3 8B, with 8.03 billion parameters, on 16 GPUs of 80 GiB. A parameter takes 18 bytes",
        "gives all of it to each of 16 replicas",
        (
            f"{gib(12)} GiB of optimizer states, {gib(4)} of gradients and {gib(2)} of weights: {gib(18)} GiB, "
            "which is 18 bytes",
            all(f"{part} {gib(each)}" in too_large() for part, each in PARTS),
        ),
    ]


FACTS: dict[str, Callable[[], list[Fact]]] = {
    "00_tour": lambda: TOUR,
    "01_puzzles": puzzle_book,
    "02_field": cluster_facts,
}

REFERENCES = r"\(https://arxiv\.org/abs/[\d.]+\)|^\d\. | \d+\. |\*\*\d\d_\w+\*\*|\{puzzle: \w+\}"
"""Digits that are not figures: addresses, numbered lists, names."""


@pytest.mark.parametrize("name", FACTS)
def test_every_quoted_fact_holds(name: str) -> None:
    assert wrong(words(name), FACTS[name]()) == []


@pytest.mark.parametrize("name", FACTS)
def test_every_figure_is_measured(name: str) -> None:
    assert unmeasured(words(name), FACTS[name](), REFERENCES) == []


def test_the_sum_of_the_tour_is_complete() -> None:
    """As its cells show: half of the batches and the other half."""
    halves = WeightGrad(0, 2, {2, 3}, 4) + WeightGrad(0, 2, {0, 1}, 4)
    assert halves.is_complete()
