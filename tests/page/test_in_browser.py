"""The game in a browser, without one: what a worker runs and answers, records of runs, and classes on numpy."""

import asyncio
import json
import re
import subprocess
import sys
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from lib.pipelines.torch_csv import read_csv
from puzzles.catalog.engine import ENGINE_PUZZLES
from puzzles.catalog.schedule import PUZZLES
from puzzles.custom import folder_added
from puzzles.failure import Failure, of_crash
from puzzles.page.build import LEFT_OUT
from puzzles.page.in_browser import api, player
from puzzles.page.in_browser.calls import MAX_RUNS, KeptRun, RunRecord
from puzzles.page.in_browser.calls import judged as judge_record
from puzzles.page.in_browser.player import CUT, MAX_PRINTED, REPLACED, in_words, replaced
from puzzles.page.listing import BY_HAND, WARM_UP, WITHOUT_TIMETABLE, listing, pars, references
from puzzles.player.local_run import judge_here
from puzzles.sandbox.worker.reading import Sketch
from puzzles.tracks import ALL
from puzzles.tracks.layout import LAYOUT_PUZZLES
from puzzles.tracks.plan import PLAN_PUZZLES
from tests.support.commands import ROOT, solution
from tests.support.engine_trials import REFERENCES
from tests.support.numpy_stand_in import write_wheel
from tests.support.profiles import traces
from tests.support.suspending import with_suspended_tasks

# --- What the page asks of Python, here without a browser: verdicts, pictures, timetables, and errors in words ---


async def ask(name: str, *given: Any) -> Any:
    answer = json.loads(await api.answer(name, json.dumps(given)))
    assert "error" not in answer, answer
    return answer["value"]


async def judged(slug: str, text: str) -> Any:
    """The verdict on a code, as the page gets it: one Python runs it, another one judges the record."""
    return await ask("judge", slug, await recorded(slug, text))


async def recorded(slug: str, text: str) -> Any:
    return json.loads(await player.answer("run", json.dumps([slug, text])))["value"]


async def refusal(name: str, *given: Any) -> str:
    return str(json.loads(await api.answer(name, json.dumps(given)))["error"])


async def test_a_solution_is_judged_drawn_and_verified() -> None:
    verdict = await judged("zb_h1", solution("zb_h1"))
    assert (verdict["status"], verdict["stars"], verdict["praise"]) == ("passed", 3, PUZZLES["zb_h1"].praise)
    assert [measure["text"] for measure in verdict["measures"]] == ["27", "1,466,368", "1,114,112"]
    view = await ask("view", "microbatch")
    assert view["run"]["colour"] == "microbatch"
    assert set(view) == {"title", "label", "summary", "text", "run"}
    assert "27" in view["summary"]
    assert "rank 3" in view["text"]
    assert (await ask("picture", "layer", True)).startswith("<svg")
    again = await ask("verify", "zb_h1", await ask("trace"))
    assert again["measures"] == verdict["measures"]


async def test_a_plan_is_judged_and_drawn() -> None:
    text = solution("plan/mixtral_64")
    verdict = await judged("mixtral_64", text)
    assert (verdict["status"], verdict["stars"]) == ("passed", 3)
    assert verdict["why_title"].startswith("Where time")
    assert verdict["why"][0].startswith("You predicted 77 GiB.")
    assert await ask("view", "layer") is None
    assert "expert parallel communication" in await ask("picture", "layer", False)
    again = await ask("verify", "mixtral_64", await ask("trace"))
    assert again["why"] == verdict["why"]
    wrong = await judged("mixtral_64", "x = 1")
    assert "write 'def mixtral_64(job):'" in wrong["message"]


@pytest.mark.parametrize(
    ("text", "line", "facts"),
    [
        ("def ddp(model):\n    x = (", 2, ["valid Python"]),
        ("x = 1", 0, ["no ddp", "async def ddp(model)"]),
        ("def ddp(model):\n    await model.receive()", 1, ["async def ddp"]),
        ("1 / 0", 1, ["ZeroDivisionError"]),
        ("import numpy_for_the_browser as np; np", 1, ["no numpy_for_the_browser in the browser", "standard library"]),
        ("async def ddp(model):\n    import nowhere.at_all", 2, ["no nowhere in the browser"]),
        ("input('which?')", 1, ["write the value into the code"]),
        ("import time\n\nasync def ddp(model):\n    time.sleep(100)", 4, ["clock of the game", "remove it"]),
        ("import os\nos._exit(1)", 2, ["let the function return"]),
        ("import os\n\nasync def ddp(model):\n    os.abort()", 4, ["let the function return"]),
        ("async def ddp(model):\n    await ddp(model)", 2, ["calls itself endlessly"]),
        ("async def ddp(model):\n    model.forward(0, 1, 2)", 2, ["rank 0, t=0", "inp"]),
        ("from lib.pipelines import ddp", 0, ["lib.pipelines"]),
        ("async def ddp(model):\n    await model.receive()", 2, ["nobody can move"]),
    ],
)
async def test_a_mistake_has_its_line_and_its_words(text: str, line: int, facts: list[str]) -> None:
    verdict = await judged("ddp", text)
    assert (verdict["status"], verdict["line"], verdict["stars"]) == ("failed", line, 0)
    assert all(fact in verdict["message"] for fact in facts)


async def test_a_starter_is_not_attempted() -> None:
    starter = listing()["puzzles"]["gpipe"]["starter"]
    verdict = await judged("gpipe", starter)
    assert (verdict["status"], verdict["message"]) == ("not_attempted", "")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What runs tell while they go on: what they print, and the line that is reached."""
    messages: list[tuple[str, int]] = []
    monkeypatch.setattr(player, "send", lambda printed, line: messages.append((printed, line)))
    return messages


async def printed_by(text: str, sent: list[tuple[str, int]]) -> str:
    await recorded("basic", text)
    return "".join(printed for printed, _ in sent)


async def test_what_is_printed_is_sent_and_cut(sent: list[tuple[str, int]]) -> None:
    assert (
        await printed_by("print('hello')\ndef basic(model):\n    print(model.rank)\n    1 / 0\n", sent) == "hello\n0\n"
    )
    sent.clear()
    printed = await printed_by("def basic(model):\n    for i in range(10**5): print(i)\n    1 / 0\n", sent)
    assert printed.startswith("0\n1\n2\n")
    assert len(printed) == MAX_PRINTED + len(CUT)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
async def test_a_line_is_sent_before_it_runs(sent: list[tuple[str, int]]) -> None:
    loop = "    while monotonic() < end:\n        x = 1\n"
    text = f"from time import monotonic\ndef basic(model):\n    end = monotonic() + 0.5\n{loop}    1 / 0\n"
    await recorded("basic", text)
    lines = [line for _, line in sent]
    assert lines[:3] == [1, 2, 3]
    assert lines.count(5) > 1, "a loop goes on"
    assert lines[-1] == 6


@pytest.mark.sampled(1)
@pytest.mark.parametrize("slug", BY_HAND)
async def test_code_becomes_a_timetable_and_that_becomes_code_with_the_same_times(slug: str) -> None:
    text = solution("gpipe").replace("def gpipe", "def pipeline") if slug == "pipeline" else solution(slug)
    verdict = await judged(slug, text)
    rows = await ask("timetable_of_runs", slug, await recorded(slug, text))
    draft = await ask("draft", slug, rows)
    assert draft["missing"] == []
    assert await ask("read_timetable", slug, draft["text"]) == rows
    again = await judged(slug, await ask("written", slug, rows))
    assert again["measures"][0] == verdict["measures"][0]
    assert again["status"] == "passed"
    assert any("the shown size" in note for note in again["details"])


@pytest.mark.slow
async def test_the_timetable_of_a_mesh_has_a_row_for_each_place_in_the_pipeline() -> None:
    assert listing()["puzzles"]["three_d"]["rows"] == 2
    draft = await ask("draft", "three_d", [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]], "layer")
    assert draft["missing"] == []
    assert draft["rows"][1][1] == {"cell": "1B0", "start": 2, "length": 1}, "halves of two layers"
    assert [one["met"] for one in draft["measures"]] == [True, True, True]
    assert len(draft["view"]["run"]["labels"]) == 8
    begun = await ask("draft", "breadth_first", [["0F0", "0F1"], ["1F0"]])
    assert begun["measures"][2]["value"] > 0, "weights were gathered"
    assert "4 microbatches" in await refusal(
        "timetable_of_runs", "pipeline", await recorded("pipeline", solution("pipeline"))
    )


async def test_a_reference_is_compared_with_the_code_that_ran_last() -> None:
    mine = solution("ddp").replace("reversed(range(model.LAYERS))", "range(model.LAYERS)[::-1]")
    await judged("ddp", mine)
    assert references()["ddp"] == solution("ddp")
    found = await ask("compare", mine, solution("ddp"), await recorded("ddp", solution("ddp")), "layer", False)
    assert [line[:2] for line in found["lines"]] == ["- ", "- ", "+ "]
    assert "the reference" in found["picture"]
    assert (await ask("verify", "ddp", await ask("trace")))["status"] == "passed", "what ran last is still the player's"


@pytest.mark.slow
def test_a_pipeline_without_a_timetable_says_why() -> None:
    pipelines = {slug for slug in PUZZLES if "pipeline" in PUZZLES[slug].goal.family}
    assert pipelines == {*BY_HAND, *WITHOUT_TIMETABLE}
    shown = listing()["puzzles"]
    assert [slug for slug in shown if shown[slug]["timetable"]] == [slug for slug in shown if slug in BY_HAND]
    assert {slug for slug in shown if "no timetable by hand: " in shown[slug]["no_timetable"]} == {*WITHOUT_TIMETABLE}


async def test_the_solver_and_the_planner_work_in_the_editor(sent: list[tuple[str, int]]) -> None:
    """Where a loop is running already, as in the browser."""
    text = solution("basic") + (
        "from lib import referee\nfrom lib.pipelines.solver import solve\n"
        "found = solve(2, 3, memory=2, effort=0.05, proof_seconds=0)\n"
        "print(referee(found.trace()).makespan - found.makespan)\n"
        "from lib.planning import Job, Split, gpu, plan, transformer\n"
        "made = plan(Job(transformer('llama-3-8b'), gpu('h100'), 4, 6, sequence=1024), Split(dp=2, pp=2))\n"
        "print(len(made.trace.ranks))\n"
    )
    verdict = await judged("basic", text)
    assert verdict["status"] == "passed"
    assert "".join(printed for printed, _ in sent) == "0.0\n2\n"


async def test_a_draft_says_what_is_missing_and_where_a_cell_may_go() -> None:
    rows = [["0F0"], ["1F0", "1B0"], [], []]
    draft = await ask("draft", "one_f_one_b", rows)
    assert draft["rows"][1][1] == {"cell": "1B0", "start": 2, "length": 2}
    assert len(draft["missing"]) == 61
    assert (draft["makespan"], draft["view"]) == (2, None), "1B0 waits for 2F0, which is not placed"
    time, memory, sent = draft["measures"]
    assert (time["value"], time["target_text"], time["least"]) == (1, "< 34", 33)
    assert (memory["text"], sent["value"]) == ("786,432", 131072)
    assert {(one["cell"], one["rank"], one["start"]) for one in draft["ready"]} == {
        ("0F1", 0, 1), ("0B0", 0, 4), ("2F0", 2, 2)
    }  # fmt: skip
    assert (await ask("draft", "one_f_one_b", rows, "microbatch"))["view"]["run"]["colour"] == "microbatch"
    places = await ask("refusals", "one_f_one_b", rows, "2F0")
    assert places[1][1] == ""
    assert "1B0 needs 2F0" in places[1][2]
    assert "0F1" in await refusal("written", "one_f_one_b", rows)
    assert "4 ranks" in await refusal("read_timetable", "one_f_one_b", "0F0\n1F0")
    assert "'zero'" in await refusal("read_timetable", "one_f_one_b", "zero\n\n\n")
    assert "wait for each other" in await refusal("read_timetable", "one_f_one_b", "0B0 0F0\n1F0\n2F0\n3F0")
    assert "does not run" in await refusal("timetable_of_runs", "one_f_one_b", await recorded("one_f_one_b", "x = 1"))


async def test_code_is_saved_as_files_and_split() -> None:
    codes = {slug: solution(slug) for slug in ("gpipe", "ddp")} | {"gone": "def (\r\n\f\u2028# unfinished"}
    with ZipFile(BytesIO(b64decode(await ask("zipped", codes)))) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            f"my_solutions/{slug}.py": code.encode() for slug, code in codes.items()
        }
    assert list(await ask("split", codes["gpipe"] + codes["ddp"])) == ["ddp", "gpipe"]
    assert "line 1" in await refusal("split", "def (")


@pytest.mark.slow
def test_the_list_has_every_puzzle_and_says_which_are_played() -> None:
    shown = listing()
    assert {slug for chapter in shown["chapters"] for slug in chapter["slugs"]} == set(shown["puzzles"])
    puzzles = shown["puzzles"]
    assert all(one["played"] for one in puzzles.values())
    assert [slug for slug, one in puzzles.items() if not one["needs"]] == [*PUZZLES, *PLAN_PUZZLES]
    assert {slug for slug, one in puzzles.items() if "suspending" in one["needs"]} == {*ENGINE_PUZZLES}
    assert {slug for slug, one in puzzles.items() if not one["drawn"]} == {*ENGINE_PUZZLES}
    json.dumps(shown)
    for one in shown["puzzles"].values():
        assert all(float(size) >= 11 for size in re.findall(r"font-size=\"([\d.]+)", one["picture"]))
        assert one["statement"].startswith("<p>")
        assert one["hints"]
        has_sketch = one["slug"] in PUZZLES and PUZZLES[one["slug"]].sketch is not None
        assert one["picture"].startswith("<svg") or not has_sketch


@pytest.mark.slow
def test_the_first_puzzle_of_the_page_says_nothing_of_other_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("puzzles.page.listing.references", dict)  # all others would be run too
    with folder_added(WARM_UP):
        (third,) = (one for one in listing()["puzzles"]["warm_up"]["sections"] if one["title"] == "The third star")
        assert "other sizes" not in third["lines"][0][1]
        assert pars()["warm_up"]["run"]["timesteps"][0] < PUZZLES["warm_up"].goal.time_limit
    assert "other sizes: 3 layers" in json.dumps(listing()["puzzles"]["basic"]["sections"])


def test_what_is_replaced_during_a_run_is_there_again_after_it() -> None:
    before = [getattr(module, name) for module, name, _ in REPLACED]
    with pytest.raises(RuntimeError, match="write the value"), replaced():
        input()
    assert [getattr(module, name) for module, name, _ in REPLACED] == before


@pytest.mark.parametrize(
    "error",
    [BlockingIOError("no"), RuntimeError("can't start new thread"), ModuleNotFoundError("No module named 'x.y'"),
     OSError(138, "emscripten does not support processes."), OSError(29, "I/O error")],
)  # fmt: skip
def test_no_message_of_the_page_names_an_option_of_the_command_line(error: Exception) -> None:
    said = in_words(of_crash(error, "your_code.py", "rank 0, t=0"))
    assert said is not None
    assert "--" not in said.sentence
    assert "browser" in said.sentence
    assert said.sentence.startswith("rank 0, t=0: ")
    assert in_words(None) is None


@pytest.mark.slow
async def test_traces_of_an_own_run_are_read_and_drawn() -> None:
    found = await ask("profile", files_of("1f1b_slow"))
    assert "Schedule: 1F1B" in found["text"]
    measured, replay = found["views"]
    assert measured["heading"].startswith("Measured: ")
    assert replay["run"]["end"] < measured["run"]["end"]
    ((line, mark),) = [one for one in found["lines"] if one[1] is not None]
    assert "Rank 2 computes" in line
    assert measured["run"]["rank"][mark] == 2
    assert str(read_csv(found["csv"])).startswith("0F0 ")
    shares = await ask("profile", files_of("ddp"))
    assert "Rank 2 is" in shares["text"]
    assert shares["views"] == []
    assert (await refusal("profile", files_of("1f1b")[:3])).startswith("no file of rank 3")


def files_of(case: str) -> list[list[str]]:
    """The name and the text of each file, as the page reads them."""
    return [[f"rank{rank}.json", json.dumps(trace)] for rank, trace in enumerate(traces(case))]


# --- The record of a player's runs: judged elsewhere it gives the verdict of `play`, and what is no record is
# refused ---


RECORD = RunRecord(sketch=Sketch("abc", ("forward",)), line=3, runs=(KeptRun("{}", Failure("rule", "no")),))


def record_of(slug: str, text: str) -> Any:
    return json.loads(json.dumps(asyncio.run(player.run(slug, text))))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("slug", ["basic", "fsdp", "gpipe", "zb_v"])
@pytest.mark.parametrize("change", [("", ""), ("model.BATCHES", "4"), ("del ", "0, ")])
def test_a_record_is_judged_as_the_definition_is(slug: str, change: tuple[str, str]) -> None:
    text = solution(slug).replace(*change) if change[0] else solution(slug)
    definition = player.loaded(slug, text, player.Progress(player.send))
    here = asyncio.run(judge_here(PUZZLES[slug], definition, 60.0))
    assert judge_record(PUZZLES[slug], record_of(slug, text)) == here


def test_a_record_goes_to_plain_data_and_back() -> None:
    assert RunRecord.read(json.loads(json.dumps(RECORD.data()))) == RECORD


@pytest.mark.parametrize(
    "damage",
    [
        {"runs": None}, {"runs": [["", None]] * (MAX_RUNS + 1)}, {"runs": [["", None, 1]]}, {"runs": [[1, None]]},
        {"problem": ["rule", "words", "3", ""]}, {"problem": "rule"}, {"sketch": ["abc", [1]]}, {"sketch": [1, None]},
        {"line": "3"},
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused(damage: dict[str, Any]) -> None:
    damaged = {**RECORD.data(), **damage}
    with pytest.raises(ValueError, match="record"):
        RunRecord.read(damaged)
    others: list[Any] = [damaged, None, [], "{}", {}]
    for other in others:
        verdict = judge_record(PUZZLES["basic"], other)
        assert (verdict.status, verdict.stars) == ("failed", 0)
        assert "record" in verdict.message


def test_a_forged_record_has_no_stars() -> None:
    """Without runs, with a run that is no trace, and with a run of another puzzle."""
    good = record_of("ddp", solution("ddp"))
    assert judge_record(PUZZLES["ddp"], good).stars >= 2
    for runs in ([], [['{"stars": 3}', None]], record_of("basic", solution("basic"))["runs"]):
        verdict = judge_record(PUZZLES["ddp"], {**good, "runs": runs})
        assert (verdict.status, verdict.stars) == ("failed", 0)
        assert verdict.message


def test_runs_that_are_left_out_cost_what_they_would_show() -> None:
    good = record_of("ddp", solution("ddp"))
    verdict = judge_record(PUZZLES["ddp"], {**good, "runs": good["runs"][:1]})
    assert verdict.stars <= 2


# --- Layout and engine puzzles as the page plays them: judged from a record, on what a browser has ---


async def answered(slug: str, text: str) -> Any:
    """The verdict on a code, and its picture."""
    return await judged(slug, text), await ask("picture", "layer", False)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("slug", LAYOUT_PUZZLES)
def test_a_layout_is_completed_judged_and_drawn(slug: str) -> None:
    verdict, picture = asyncio.run(answered(slug, solution(f"layout/{slug}")))
    assert (verdict["status"], verdict["stars"]) == ("passed", 3)
    assert picture.startswith("<svg")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("slug", ENGINE_PUZZLES)
def test_a_class_is_run_and_judged(slug: str) -> None:
    text = REFERENCES[slug].read_text(encoding="utf-8")
    verdict, picture = with_suspended_tasks(lambda: answered(slug, text))
    assert verdict["status"] == "passed"
    assert [one["target"] for one in verdict["measures"]] == [*ALL[slug].words.targets(ENGINE_PUZZLES[slug]).values()]
    assert picture == ""


@pytest.mark.parametrize(
    ("slug", "text", "facts"),
    [
        ("matmul", "def matmul(graph):\n    graph.shard('nothing', ((1, 1), (1, 1)))", ["nothing"]),
        ("matmul", "x = 1", ["write 'def matmul(graph):'"]),
        ("FSDP", "x = 1", ["write 'class FSDP(ShardedEngine):'"]),
        ("FSDP", "def FSDP(x): pass", ["is not a class"]),
    ],
)
def test_a_mistake_has_its_words(slug: str, text: str, facts: list[str]) -> None:
    verdict, _ = with_suspended_tasks(lambda: answered(slug, text))
    assert (verdict["status"], verdict["stars"]) == ("failed", 0)
    assert all(fact in verdict["message"] for fact in facts)


@pytest.mark.parametrize("sent", ["[]", "3", "{", "{}", '{"results": 1}'])
@pytest.mark.parametrize("slug", ["matmul", "FSDP"])
def test_a_forged_run_has_no_stars(slug: str, sent: str) -> None:
    record = {"problem": None, "sketch": ["", None], "line": 0, "runs": [[sent, None]]}
    verdict = json.loads(asyncio.run(api.answer("judge", json.dumps([slug, record]))))["value"]
    assert (verdict["status"], verdict["stars"]) == ("failed", 0)
    assert verdict["message"]


IMPORTS = """
import sys
from types import ModuleType

wheel, absent = sys.argv[1], sys.argv[2].split()

class NotHere:
    def find_spec(self, name, path=None, target=None):
        if name.replace(".", "/").startswith(tuple(absent)):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

import chalk  # what it imports of itself is not in the archive
sys.meta_path.insert(0, NotHere())
sys.modules |= {"pyodide": ModuleType("pyodide"), "pyodide.ffi": ModuleType("pyodide.ffi")}
sys.modules["pyodide.ffi"].run_sync = print
sys.path.insert(0, wheel)
sys.platform = "emscripten"
import numpy
import lib.engine, lib.layout, drawing.layout_graph
import puzzles.sandbox.worker.stages.engine_trial, puzzles.sandbox.worker.stages.functions
import puzzles.tracks.engine.judge, puzzles.tracks.layout.judge, puzzles.tracks.layout.show
print(numpy.__version__, sys.modules["lib.engine.transport"].greenlet.__module__)
"""


@pytest.mark.slow
def test_what_is_imported_is_in_a_browser(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "numpy-2.4.6-cp314-cp314-pyemscripten_2026_0_wasm32.whl")
    absent = "greenlet scipy torch jax mpi4py rich click multiprocessing unittest doctest pydoc"
    absent = f"{absent} {' '.join(name for name in LEFT_OUT if name.startswith('puzzles'))}"
    done = subprocess.run([sys.executable, "-c", IMPORTS, str(wheel), absent], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0 lib.engine.suspended\n", "")
