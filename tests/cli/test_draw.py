"""`puzzles draw`: every way of looking at a schedule; and `--colour` wherever a command draws."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result

from drawing.palette import OPERATIONS, batch_colour
from puzzles.sandbox.worker.stages.functions import Schedule
from tests.support.commands import SOLUTIONS, puzzles, said

pytestmark = pytest.mark.usefixtures("in_an_empty_folder", "in_this_process")

GPIPE, FSDP = f"{SOLUTIONS}/gpipe.py", f"{SOLUTIONS}/fsdp.py"


def draw(*arguments: str, code: int = 0) -> Result:
    return puzzles("draw", *arguments, code=code)


def written(name: str) -> str:
    return Path(name).read_text(encoding="utf-8")


def test_the_picture_shows_the_targets_and_the_critical_path_if_asked() -> None:
    draw(GPIPE, "gpipe")
    assert "(target &lt; 34)" in written("gpipe.svg")
    assert "critical path" not in written("gpipe.svg")
    draw(GPIPE, "gpipe", "--critical", "--dark")
    assert "critical path" in written("gpipe.svg")


def test_text_is_printed_at_the_terminals_width_and_writes_no_file() -> None:
    shown = draw(GPIPE, "gpipe", "--text").stdout
    assert shown.startswith("GPipe schedule\n")
    assert "rank 0 F0F1F0F1s" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert max(map(len, draw(GPIPE, "gpipe", "--text", "--width", "200").stdout.splitlines())) > 150
    assert list(Path().iterdir()) == []
    assert "Wrote x.html." in draw(GPIPE, "gpipe", "--text", "-o", "x.html").stdout


def test_text_shows_a_failure_as_far_as_it_went() -> None:
    Path("mine.py").write_text(
        "def ddp(model):\n    model.forward(0, model.get_activation([0]), model.load_weights(0)[0])\n"
    )
    result = draw("mine.py", "ddp", "--text", code=0)
    assert "Not finished" in result.stdout


RING = """\
async def ddp(model):
    await model.receive((model.rank + 1) % 4)
"""
FORGED = (
    {},
    {"waits": {"0": "receive()"}, "lines": {}, "cycle": []},
    {"waits": {"9": "receive()"}, "lines": {"9": 1}, "cycle": []},
    {"waits": {}, "lines": {}, "cycle": [[0, 9]]},
    {"waits": {}, "lines": {}, "cycle": [0]},
    {"waits": {"0": 1}, "lines": {"0": 1}, "cycle": []},
    [],
)


def test_a_deadlock_shows_where_each_rank_is_stuck_and_forged_facts_show_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("mine.py").write_text(RING)
    draw("mine.py", "ddp", code=1)
    assert [f"stuck in receive({rank}) on line 2" in written("ddp.svg") for rank in range(4)] == [True] * 4
    real = Schedule.run_definition
    for forged in FORGED:
        monkeypatch.setattr(
            Schedule, "run_definition",
            lambda *given, forged=forged: replace(result := real(*given), data={**result.data, "deadlock": forged}),
        )  # fmt: skip
        draw("mine.py", "ddp", code=1)
        assert "stuck in" not in written("ddp.svg")


@pytest.mark.slow
def test_against_a_folder_compares_with_the_file_named_after_the_puzzle() -> None:
    other = f"{SOLUTIONS}/records/gpipe_laps.py"
    draw(other, "gpipe", "--against", SOLUTIONS)
    assert f"compared with {GPIPE}" in written("gpipe_against.svg")
    draw(GPIPE, "gpipe", "--against", other, "-o", "two.svg")
    assert f"compared with {other}" in written("two.svg")
    Path("gpipe_against.svg").unlink()
    draw(GPIPE, "gpipe", "--against", "solutions")  # where there is no such folder, the references
    assert f"compared with {GPIPE}" in written("gpipe_against.svg")
    Path("solutions").mkdir()
    assert "does not exist" in draw(GPIPE, "gpipe", "--against", "sollutions", code=2).stderr


@pytest.mark.sampled(1)
@pytest.mark.parametrize("works", [True, False])
def test_what_was_written_is_opened(works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def browse(address: str) -> bool:
        opened.append(address)
        return works

    monkeypatch.setattr("webbrowser.open", browse)
    result = draw(GPIPE, "gpipe", "--open")
    draw(f"{SOLUTIONS}/layout/ffn.py", "ffn", "--open", "-o", "plan.svg")
    draw(GPIPE, "gpipe")
    assert opened == [Path(name).resolve().as_uri() for name in ("gpipe.svg", "plan.svg")]
    assert "Wrote gpipe.svg." in result.stdout
    assert ("no browser" in result.stderr) == (not works)


@pytest.mark.slow
def test_pareto_shows_every_attempt_in_a_folder() -> None:
    draw(f"{SOLUTIONS}/records", "gpipe", "--pareto")
    picture = written("gpipe_pareto.svg")
    solving = [path for path in Path(SOLUTIONS, "records").glob("*.py") if "def gpipe(" in path.read_text()]
    assert picture.count("<title>attempt:") == len(solving) > 2
    draw(GPIPE, "gpipe", "--pareto", "-o", "one.svg")
    assert "attempt: gpipe.py, 33.3 timesteps" in written("one.svg")


@pytest.mark.slow
def test_pareto_reports_what_failed_and_draws_the_others() -> None:
    Path("good.py").write_text(Path(FSDP).read_text())
    Path("bad.py").write_text("async def fsdp(model):\n    await model.receive()\n")
    Path("worse.py").write_text("def fsdp(:\n")
    Path("other.py").write_text("x = 1\n")
    result = draw(".", "fsdp", "--pareto", code=1)
    Path("worse.py").unlink()
    result = draw(".", "fsdp", "--pareto", code=1)
    assert "bad.py: line 2:" in result.stderr
    assert "attempt: good.py" in written("fsdp_pareto.svg")


REFUSALS = [
    (("idle.py", "gpipe"), 1, "gpipe did nothing, so there is nothing to draw"),
    ((GPIPE, "gpipe", "--text", "--width", "20"), 2, "a text picture is at least 40 columns wide; got 20"),
    ((GPIPE, "gpipe", "--against", FSDP), 2, "fsdp.py has no function gpipe to compare with"),
    (
        (GPIPE, "gpipe", "--against", SOLUTIONS, "-o", "x.json"),
        2,
        "only the timeline of one run can be written as .json",
    ),
    ((GPIPE, "gpipe", "-o", "x"), 2, "cannot write x: a name without an ending is unknown; use .svg"),
    ((GPIPE, "gpipe", "-o", "no/such/x.html"), 2, "cannot write no/such/x.html: no such file or directory"),
    ((FSDP, "gpipe", "--pareto"), 1, "fsdp.py has no function gpipe; write 'def gpipe(model):'"),
    ((GPIPE, "gpipe", "--against", "broken.py"), 1, "broken.py, to compare with, failed: line 1: "),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("arguments", "code", "message"), REFUSALS, ids=lambda x: x if isinstance(x, str) else "")
def test_refusals_say_what_would_be_right(arguments: tuple[str, ...], code: int, message: str) -> None:
    Path("broken.py").write_text("async def gpipe(model): await model.receive()\n")
    Path("idle.py").write_text("def gpipe(model): pass\n")
    result = draw(*arguments, code=code)
    assert message.lower() in " ".join(result.stderr.lower().split())
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_colours_of_a_picture_a_page_and_a_comparison() -> None:
    for arguments in (["-o", "x.svg"], ["-o", "x.html"], ["--against", GPIPE, "-o", "x.svg"]):
        draw(GPIPE, "gpipe", *arguments)
        plain = written(arguments[-1])
        draw(GPIPE, "gpipe", "--colour", "layer", *arguments)
        assert written(arguments[-1]) == plain
        draw(GPIPE, "gpipe", "--colour", "microbatch", *arguments)
        assert written(arguments[-1]) != plain
        assert all(batch_colour(batch) in written(arguments[-1]) for batch in range(4))
        if not arguments[-1].endswith(".html"):  # a page has all colours, to change them
            assert not any(batch_colour(batch) in plain for batch in range(4))
    assert "rank 0 F0F0F1F1" in draw(GPIPE, "gpipe", "--text", "--colour", "operation").stdout


def test_colours_that_there_are_not_are_refused() -> None:
    layout = f"{SOLUTIONS}/layout/ffn.py"
    for arguments, facts in (
        ([GPIPE, "gpipe", "--colour", "stage"], ["--colour", "'stage'", "layer", "microbatch", "operation"]),
        ([GPIPE, "gpipe", "--pareto", "--colour", "microbatch"], ["--pareto", "leave out --colour"]),
        ([layout, "ffn", "--colour", "microbatch"], ["ffn is a layout", "without these options"]),
    ):
        output = " ".join(draw(*arguments, code=2).output.replace("│", "").split())
        assert [fact for fact in facts if fact not in output] == []
    assert list(Path().iterdir()) == []


@pytest.mark.slow
def test_run_colours_its_picture() -> None:
    said("run", GPIPE, "gpipe", "--small", "-o", "x.svg", "--colour", "operation")
    assert written("x.svg").count(f'fill="{OPERATIONS["backward"]}"') > 2 * 4 * 8


# --- `--colour` of the commands whose pictures are only one of their outputs ---


GRADE = ("grade", GPIPE, "--puzzle", "gpipe")
SOLVE = ("solve", "--ranks=3", "--microbatches=4", "--memory=3", "--effort=0.02", "--proof-seconds=0")
PLAN = ("plan", "--model=llama-3-8b", "--gpus=8", "--gpu=h100", "--batch=8", "--best=1", "--pp=4")


@pytest.mark.slow
def test_the_pictures_in_a_report_and_in_the_pages_of_a_class_have_the_colours_that_are_asked_for() -> None:
    batches = [batch_colour(batch) for batch in range(4)]
    said(*GRADE, "-o", "layers.html")
    assert not any(colour in Path("layers.html").read_text() for colour in batches)
    said(*GRADE, "-o", "batches.html", "--colour", "microbatch")
    assert all(colour in Path("batches.html").read_text() for colour in batches)
    said(*GRADE, "-o", "pages", "--colour", "microbatch")
    (page,) = Path("pages/students").iterdir()
    assert all(colour in page.read_text() for colour in batches)


@pytest.mark.slow
def test_what_is_solved_imported_or_planned_is_drawn_in_them() -> None:
    said(*SOLVE, "-o", "solved.svg", "-o", "solved.csv", "--colour", "operation")
    assert Path("solved.svg").read_text().count(OPERATIONS["forward"]) > 2 * 4
    said("import", "solved.csv", "-o", "read.svg", "--colour", "microbatch")
    assert all(batch_colour(batch) in Path("read.svg").read_text() for batch in range(4))
    said(*PLAN, "-o", "plan.svg", "--colour", "operation")
    assert OPERATIONS["forward"] in Path("plan.svg").read_text()


@pytest.mark.parametrize("command", [GRADE, SOLVE, PLAN, ("import", GPIPE)], ids=lambda words: words[0])
def test_a_colour_that_there_is_not_is_refused(command: tuple[str, ...]) -> None:
    output = said(*command, "--colour", "stage", code=2)
    assert [fact for fact in ("--colour", "'stage'", "layer", "microbatch", "operation") if fact not in output] == []


@pytest.mark.parametrize(
    ("command", "option"),
    [(GRADE, "-o page.html"), (SOLVE, "-o"), (PLAN, "-o"), (("import", GPIPE), "-o"), (("run", GPIPE, "gpipe"), "-o")],
    ids=lambda x: x[0],
)
def test_a_colour_without_a_picture_is_refused(command: tuple[str, ...], option: str) -> None:
    output = said(*command, "--colour", "layer", code=2)
    assert option in output
