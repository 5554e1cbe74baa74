"""`play` of classes and layouts; and on every track the words of `play` are those of `grade`."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from puzzles import play
from puzzles.judge.grader import grade_file
from puzzles.tracks import find, track_of

pytestmark = pytest.mark.usefixtures("in_this_process")

ROOT = Path(__file__).parents[2]


def source(name: str) -> str:
    return (ROOT / "solutions" / f"{name}.py").read_text(encoding="utf-8")


def starter(slug: str) -> str:
    track = track_of(slug)
    puzzle = track.puzzle(slug)
    return f"{track.words.starter_head([puzzle])}\n\n{puzzle.starter}"


def definition(path: Path, slug: str, text: str) -> Any:
    """A definition as a notebook has it: its lines are found, its module is no file of its own."""
    path.write_text(text, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, str(path), "exec"), names)
    return names[slug]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return tmp_path / "mine.py"


RING = source("engine/ring_all_reduce")
FSDP = source("engine/fsdp")

SAME = [
    ("fsdp", source("fsdp")),
    ("gpipe", source("gpipe").replace("def gpipe", "def other") + source("pipeline").replace("pipeline", "gpipe")),
    ("basic", source("basic").replace("model.BATCHES", "4")),
    ("basic", source("basic").replace("return model", "model.load_weights(0)\n    return model")),
    ("ddp", "def ddp(model):\n    pass\n"),
    ("ddp", "def ddp(model):\n    yield\n"),
    ("ddp", "async def ddp(model):\n    await model.receive()\n"),
    ("ddp", "async def ddp(model):\n    [][model.rank]\n"),
    ("FSDP", FSDP),
    (
        "RingAllReduce",
        RING.replace("return x\n", "x[0] += len(x) != 2048\n        return x\n"),
    ),
    ("RingAllReduce", RING.replace("return x\n", "x[0] += 1\n        return x\n")),
    ("FSDP", FSDP.replace("        return", "        1 / 0\n        return", 1)),
    ("FSDP", "class FSDP:\n    def forward(self, x): pass\n"),
    ("FSDP", FSDP.replace("def load_checkpoint(self, params", "def load_checkpoint(self")),
    ("FSDP", "def FSDP(): pass\n"),
    ("ddp", "\nclass ddp:\n    def __init__(self, model): pass\n"),
    ("ffn", "class ffn:\n    def __init__(self, graph): pass\n"),
    ("FSDP", starter("FSDP")),
    ("ffn", source("layout/ffn")),
    ("ffn", "def ffn(graph):\n    graph.shard('relu', ((2, 4),))\n"),
    ("ffn", "def ffn(graph):\n    graph.shard('relu', ((16, 1),))\n"),
    ("ffn", "def ffn(graph):\n    1 / 0\n"),
    ("ffn", "async def ffn(graph): pass\n"),
    ("ffn", starter("ffn")),
]


@pytest.mark.sampled(1)
@pytest.mark.sandboxed
@pytest.mark.parametrize(("slug", "text"), SAME)
def test_play_and_grade_say_the_same(slug: str, text: str, mine: Path) -> None:
    """Except for line numbers, which `play` shows next to the message."""
    result = play(slug, definition(mine, slug, text))
    (verdict,) = grade_file(str(mine), [find(slug)]).verdicts
    told = verdict.as_json()
    told["message"] = re.sub(r"^line \d+: ", "", told["message"])
    told["notes"] = [re.sub(r"fails: line \d+: ", "fails: ", note) for note in told["notes"]]
    assert result.as_dict() == told
    assert result.place.line == verdict.line
    assert result.figures == (track_of(slug).words.figures_text(find(slug), verdict.figures) if verdict.figures else "")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("slug", "name"), [("ddp", "ddp"), ("FSDP", "engine/fsdp"), ("ffn", "layout/ffn")])
def test_a_script_that_plays_is_graded_like_one_that_does_not(slug: str, name: str, mine: Path) -> None:
    mine.write_text(source(name) + f"\n\nfrom puzzles import play\n\nplay({slug!r}, {slug})\nplay({slug})\n")
    (verdict,) = grade_file(str(mine), [find(slug)]).verdicts
    assert (verdict.status, verdict.message, verdict.printed) == ("passed", "", ())


def test_over_target_a_class_is_shown_what_it_calls(mine: Path) -> None:
    once, twice = "self.all_reduce(w0_grad)", "self.all_reduce(self.all_reduce(w0_grad)) / self.num_devices"
    slug = "DataParallel"
    result = play(slug, definition(mine, slug, source("engine/data_parallel").replace(once, twice)))
    assert result.status == "over_target"
    assert "3 all_reduce." in result.next_step
    assert "`puzzles show DataParallel --about`" in result.next_step


@pytest.mark.slow
def test_a_class_has_its_figures_its_stars_and_as_many_puppies_as_devices(mine: Path) -> None:
    beaten = play(definition(mine, "FSDP", FSDP))
    assert "8,576 peak bytes" in beaten.next_step
    cls = definition(mine, "FSDP", source("engine/records/fsdp"))
    result = play(cls)
    assert (repr(result), result.values["sent"]) == ("<FSDP: passed, ★★★>", 18_432)
    assert result.text().startswith("★★★ FSDP: Solved! 18,432 of 18,432 bytes sent, 24,576 of 24,576 flops, ")
    page = result.page()
    assert "<b>18,432</b> bytes sent" in page
    assert page.count("<animateTransform") == 2 * 4
    assert (result.picture, result.trace, result.report) == ("", None, None)


def test_a_failing_class_has_the_line_in_its_method(mine: Path) -> None:
    text = FSDP.replace("        return", "        raise KeyError('wo')  # here\n        return", 1)
    result = play("FSDP", definition(mine, "FSDP", text))
    assert (result.status, result.reason) == ("failed", "crash")
    assert re.match(r"raised on device 3 of 4, in forward: KeyError: 'wo'", result.message)
    assert [c for line, c in result.place.excerpt() if line == result.place.line] == ["raise KeyError('wo')  # here"]


def test_a_layout_has_the_picture_of_its_plan(mine: Path) -> None:
    result = play("layout:ffn", definition(mine, "ffn", source("layout/ffn")))
    assert result.text().startswith("★★★ ffn: Solved! 12,288 of 12,288 bytes moved, ")
    assert result.trace.bytes == 12_288
    picture = result.picture
    assert "matmul2" in picture
    assert picture in result.page()


LOOP = "while True:  # stuck\n"
ENDLESS = {
    "FSDP": FSDP.replace(
        "        return", "        while True:  # stuck\n            pass  # stuck\n        return", 1
    ),
    "ffn": f"def ffn(graph):\n    {LOOP}        pass  # stuck\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("slug", ENDLESS)
async def test_what_never_ends_is_stopped_with_its_line(slug: str, mine: Path) -> None:
    before = asyncio.all_tasks()
    result = await play(slug, definition(mine, slug, ENDLESS[slug]), seconds=0.3)
    assert (result.status, result.reason) == ("failed", "timeout")
    assert "0.3 s" in result.message
    marked = [code.strip() for line, code in result.place.excerpt() if line == result.place.line]
    assert marked in (["while True:  # stuck"], ["pass  # stuck"])
    assert asyncio.all_tasks() == before


INTERRUPTED = {
    "FSDP": FSDP.replace("        return", "        signal.raise_signal(2)\n        return", 1),
    "ffn": "def ffn(graph):\n    signal.raise_signal(2)\n",
}


@pytest.mark.parametrize("slug", INTERRUPTED)
async def test_ctrl_c_ends_a_class_or_a_layout(slug: str, mine: Path) -> None:
    result = await play(slug, definition(mine, slug, "import signal\n" + INTERRUPTED[slug]))
    assert (result.status, result.reason) == ("failed", "interrupted")
    assert "you interrupted it" in result.message


async def test_play_takes_the_class_itself(mine: Path) -> None:
    result = await play("FSDP", None)
    words = "play got the puzzle's name, but not your class; write play('FSDP', FSDP)"
    assert (result.reason, result.message) == ("crash", words)
