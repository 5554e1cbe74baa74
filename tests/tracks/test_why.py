"""Why is my peak here? The same explanation in the terminal, in JSON, in a notebook and in the HTML report."""

from __future__ import annotations

import json
import re
import textwrap
from importlib import import_module
from pathlib import Path

import nbformat
import pytest

from puzzles import play
from puzzles.catalog.schedule import PUZZLES
from puzzles.screens.feedback import achieved, built
from tests.support import CLASSICS
from tests.support.commands import puzzles

COLUMNS = 200
pytestmark = pytest.mark.usefixtures("in_an_empty_folder", "in_this_process")

ROOT = Path(__file__).parents[2]
DDP = (ROOT / "solutions" / "ddp.py").read_text(encoding="utf-8")

BACKWARD, ALLREDUCE = (
    next(number for number, line in enumerate(DDP.splitlines(), 1) if f"model.{name}(" in line)
    for name in ("backward", "allreduce")
)
GREEDY = DDP.replace("del ", "len(model.storage()); # del ")
"""Deletes nothing, so it is over target in memory."""

STORAGE = "grad_weights = model.storage()\n"
SLOW = DDP.replace(
    STORAGE, f"{STORAGE}    for _ in range(4):\n        await model.allreduce(model.fake_grad(0, []), 0)\n"
)


def grade(*arguments: str) -> str:
    result = puzzles("grade", *arguments)
    return result.stdout


def written(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def rows(text: str) -> list[int]:
    """The elements at the beginning of the rows of an explanation, without those on traffic."""
    of_peak = re.sub(r"^[^\n]* sends [\d,]+ elements, and all ranks.*?(?=^\S|\Z)", "", text, flags=re.M | re.S)
    return [int(figure.replace(",", "")) for figure in re.findall(r"^ +([\d,]+)  ", of_peak, re.MULTILINE)]


def peak(text: str) -> int:
    found = re.search(r"The peak, ([\d,]+) elements", text)
    assert found is not None
    return int(found[1].replace(",", ""))


def test_a_pass_is_explained_on_request_only() -> None:
    path = written("ddp.py", DDP)
    asked = grade(path, "--puzzle", "ddp", "--why")
    assert sum(rows(asked)) == peak(asked) == 1_835_008
    assert f"(made at line {BACKWARD})" in " ".join(asked.split())
    assert "The peak," not in grade(path, "--puzzle", "ddp")


def test_too_much_memory_is_explained_at_once() -> None:
    shown = grade(written("ddp.py", GREEDY), "--puzzle", "ddp")
    assert "over target" in shown
    assert sum(rows(shown)) == peak(shown) > 1_900_000
    assert "Nobody reads" in shown


def test_too_much_time_is_not_a_question_of_memory() -> None:
    shown = grade(written("ddp.py", SLOW), "--puzzle", "ddp")
    assert "over target" in shown
    assert "The peak," not in shown


@pytest.mark.slow
def test_a_class_is_explained_on_request_with_each_file_named() -> None:
    for name, text in (("a.py", DDP), ("b.py", GREEDY)):
        written(name, text)
    asked = grade("a.py", "b.py", "--puzzle", "ddp", "--why")
    assert re.findall(r"(\w\.py), ddp, where", asked) == ["a.py", "b.py"]
    assert "The peak," not in grade("a.py", "b.py", "--puzzle", "ddp")


def test_json_has_it_when_asked() -> None:
    path = written("ddp.py", DDP)
    (asked,) = json.loads(grade(path, "--puzzle", "ddp", "--json", "--why"))["files"][0]["results"]
    (plain,) = json.loads(grade(path, "--puzzle", "ddp", "--json"))["files"][0]["results"]
    assert sum(rows("\n".join(asked["why"]))) == asked["peak_memory"]
    assert asked == {**plain, "why": asked["why"]}


@pytest.mark.parametrize("source", ["async def ddp(model):\n    await model.receive()\n", "x = 1\n"])
def test_where_nothing_is_correct_there_is_nothing_to_explain(source: str) -> None:
    shown = grade(written("ddp.py", source), "--puzzle", "ddp", "--why")
    assert "--why explains" in shown


@pytest.mark.slow
def test_a_class_has_no_schedule_to_explain() -> None:
    shown = grade(str(ROOT / "solutions" / "engine" / "data_parallel.py"), "--why")
    assert "there is none here" in shown


def test_the_lines_of_a_notebook_are_counted_by_cell() -> None:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in ("import math", DDP)])
    nbformat.write(made, "mine.ipynb")
    asked = " ".join(grade("mine.ipynb", "--puzzle", "ddp", "--why").split())
    assert f"cell 2, line {BACKWARD})" in asked
    assert f"starts (cell 2, line {ALLREDUCE})" in asked


@pytest.mark.slow
def test_the_page_explains_every_schedule_and_opens_what_matters() -> None:
    grade(written("a.py", DDP), "--puzzle", "ddp", "-o", "a.html")
    grade(written("b.py", GREEDY), "--puzzle", "ddp", "-o", "b.html")
    passed, over = (Path(name).read_text(encoding="utf-8") for name in ("a.html", "b.html"))
    for page, tag in ((passed, "<details>"), (over, "<details open>")):
        (text,) = re.findall(rf"{tag}<summary>Where memory and traffic go</summary><pre>(.*?)</pre>", page, re.DOTALL)
        assert sum(rows(text)) == peak(text)


def test_play_explains_on_request_in_text_and_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    classic = next(classic for classic in CLASSICS if classic.slug == "ddp")
    asked = play("ddp", classic.solution, why=True)
    shown = capsys.readouterr().out
    assert sum(rows(shown)) == peak(shown) == asked.report.peak.memory
    assert sum(rows(asked.page())) == asked.report.peak.memory
    plain = play("ddp", classic.solution)
    assert "The peak," not in capsys.readouterr().out
    assert "The peak," not in plain.page()
    assert plain.why == asked.why


def test_play_explains_too_much_memory_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    result = play("fsdp", import_module("solutions.records.fsdp_one_activation_twice").fsdp)
    assert not result.shown_why
    scope: dict[str, object] = {}
    exec(compile(GREEDY, "greedy.py", "exec"), scope)
    capsys.readouterr()
    over = play("ddp", scope["ddp"])
    assert over.status == "over_target"
    assert peak(capsys.readouterr().out) == over.report.peak.memory > PUZZLES["ddp"].goal.memory


# --- Classes ---


FSDP = (ROOT / "solutions" / "engine" / "fsdp.py").read_text(encoding="utf-8")


def test_the_peak_of_a_class_is_explained_by_lines() -> None:
    """The rows add up to the peak, and the activation that ends too late is named."""
    shown = grade(written("mine.py", FSDP), "--why")
    assert "9,088" in shown
    assert sum(int(one.replace(",", "")) for one in re.findall(r"^ +([\d,]+)  (?:made|given)", shown, re.M)) == 9_088
    assert re.search(r" 512  made at line 32; no operation reads it again", shown)
    assert re.search(r" 128  given to the class; no operation reads it again", shown)
    assert re.search(r" 128  made at line 34$", shown, re.M)  # 'x' is returned, so it is read


@pytest.mark.slow
def test_a_class_over_its_target_is_told_why_without_being_asked() -> None:
    kept = FSDP.replace("        w1_grad = self", "        whole = self.all_gather(self.w0)\n        w1_grad = self")
    shown = grade(written("mine.py", kept))
    assert "9,088" in shown
    assert re.search(r"4,096  made at line 31; no operation reads it again", shown)


# --- After a pass ---


@pytest.mark.sampled(1)
@pytest.mark.parametrize("why", [False, True])
def test_the_peak_of_a_second_step_has_its_reason_also_without_why(why: bool) -> None:
    result = play("interleaved", import_module("solutions.interleaved").interleaved, why=why)
    reason = "elements (rank 0), because a message takes memory until it is read."
    assert f"3,153,920 {reason}" in result.next_step
    assert achieved(result.verdict).startswith("1 timestep, 54,272 elements and 71,776 elements ")


@pytest.mark.slow
@pytest.mark.parametrize("slug", ["pipeline_fsdp", "fsdp_prefetch", "host_update"])
def test_what_is_built_has_six_lines(slug: str) -> None:
    result = play(slug, getattr(import_module(f"solutions.{slug}"), slug))
    assert len(textwrap.wrap(f"{slug}: {built(result.verdict)}", 80)) <= 6
