"""A leaderboard that needs no trust: only runs that pass again are on it, in fronts, and always the same bytes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import puzzles.leaderboard.take_over as take_over_module
from puzzles import address
from puzzles.catalog.found import INDEX, rows_of
from puzzles.catalog.schedule import PUZZLES
from puzzles.catalog.schedule import found as found_module
from puzzles.catalog.schedule.found import FOUND, with_found
from puzzles.commands.main import main
from puzzles.custom import folder_added
from puzzles.custom.writing import begin
from puzzles.grading.grader import grade_file
from puzzles.leaderboard.board import collected, rankings
from puzzles.leaderboard.entry import Entry, read_entry
from puzzles.tracks import find, track_of
from puzzles.version import VERSION

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "solutions" / "records"


def puzzles(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def trace_of(path: Path, slug: str) -> str:
    return grade_file(str(path), [find(slug)], keep=True).verdicts[0].trace


@pytest.fixture(scope="module")
def traces() -> dict[str, str]:
    """Runs of DDP by name: the reference's, a faster one, and a leaner one, which takes longer and misses the time."""
    files = {
        "reference": ROOT / "solutions" / "ddp.py",
        "early": RECORDS / "ddp_update_before_next_backward.py",
        "sharded": RECORDS / "ddp_sharded.py",
    }
    return {name: trace_of(path, "ddp") for name, path in files.items()}


@pytest.fixture
def entries(tmp_path: Path, traces: dict[str, str]) -> Path:
    for name, trace in traces.items():
        (tmp_path / f"{name}.json").write_text(trace)
    for name, run in (("Ann", "reference"), ("Ben", "early"), ("Cleo", "early"), ("Ben", "reference")):
        done = puzzles(
            "submit", tmp_path / f"{run}.json", "--name", name, "--puzzle", "ddp", "-o", tmp_path / "entries"
        )
        assert done.exit_code == 0, done.output
    return tmp_path / "entries"


@pytest.mark.slow
def test_fronts_ties_and_beaten_entries(entries: Path) -> None:
    found, refused = collected(entries)
    assert not refused
    (ranking,) = rankings(found)
    assert [[entry.name for entry in place.entries] for place in ranking.front] == [["Ben", "Cleo"]]
    assert [[entry.name for entry in place.entries] for place in ranking.beaten] == [["Ann"]], (
        "not Ben's own slower one"
    )
    assert [place.point for place in (*ranking.front, *ranking.beaten)] == [
        (5.1, 1_441_792, 786_432),
        (5.1, 1_835_008, 786_432),
    ]


def test_the_order_of_entries_changes_nothing(entries: Path) -> None:
    found, _ = collected(entries)
    assert rankings(found) == rankings(reversed(found))
    points = {place.point for one in rankings(found) for place in one.front}
    every = {entry.point for entry in found}
    assert points == {p for p in every if not any(o != p and o[0] <= p[0] and o[1] <= p[1] for o in every)}


@pytest.mark.slow
def test_a_board_has_a_viewer_for_each_run_and_is_the_same_bytes_each_time(entries: Path, tmp_path: Path) -> None:
    boards = []
    for name in ("one", "two"):
        done = puzzles("leaderboard", entries, "-o", tmp_path / name, "--title", "Week 3")
        assert (done.exit_code, "with 4 entries; 0 left out" in done.output) == (0, True)
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        boards.append({path.relative_to(tmp_path / name).as_posix(): path.read_bytes() for path in files})
    assert boards[0] == boards[1]
    page = boards[0]["index.html"].decode()
    best = "5.1 timesteps, 1,441,792 elements and 786,432 elements sent: data parallelism"
    assert best in page, "the best known, with its family"
    links = re.findall(r'href="([^"]+)"', page)
    assert len(links) == 3
    assert {*links} < {*boards[0]}
    assert all(b"<svg" in boards[0][link] or b"<script" in boards[0][link] for link in links)
    data = json.loads(boards[0]["board.json"])
    assert [row["name"] for row in data["puzzles"][0]["front"]] == ["Ben", "Cleo"]
    assert puzzles("leaderboard", entries, "-o", tmp_path / "one", "--title", "Week 3", "--check").exit_code == 0


@pytest.mark.slow
def test_a_job_notices_a_board_that_differs_and_a_new_board_removes_old_runs(entries: Path, tmp_path: Path) -> None:
    board = tmp_path / "board"
    assert puzzles("leaderboard", entries, "-o", board).exit_code == 0
    (board / "mine.txt").write_text("not of the board")
    (ann,) = (entries / "ddp").glob("ann-*.json")
    ann.unlink()
    (ben,) = (path for path in (entries / "ddp").glob("ben-*.json") if read_entry(path).point[1] == 1_835_008)
    ben.unlink()
    checked = puzzles("leaderboard", entries, "-o", board, "--check")
    assert checked.exit_code == 1
    assert "index.html is out of date" in checked.output
    assert len(list(board.rglob("*.html"))) == 3, "nothing was written"
    assert puzzles("leaderboard", entries, "-o", board).exit_code == 0
    assert len(list(board.rglob("*.html"))) == 2
    assert (board / "mine.txt").exists()


def forged(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry with a run in which the first rank takes no time for its operations."""
    for operation in entry["trace"]["operations"][0]:
        operation["at"] = [0, 0]
    return entry


REFUSED = {
    "forged": (forged, "does not pass ddp"),
    "other puzzle": (lambda entry: {**entry, "puzzle": "fsdp"}, "does not pass fsdp"),
    "no puzzle": (lambda entry: {**entry, "puzzle": "ddpp"}, "did you mean 'ddp'"),
    "class": (lambda entry: {**entry, "puzzle": "DataParallel"}, "no traces of DataParallel"),
    "name": (lambda entry: {**entry, "name": "a\nb"}, "one line"),
    "long name": (lambda entry: {**entry, "name": "x" * 61}, "1 to 60 characters"),
    "number": (lambda entry: {**entry, "name": 7}, "must be strings"),
    "version": (lambda entry: {**entry, "version": 2}, "version 1"),
    "field": (lambda entry: {**entry, "stars": 3}, "fields"),
    "trace": (lambda entry: {**entry, "trace": {}}, "cannot be judged"),
    "list": (lambda entry: [entry], "there is no puzzle"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_pass_is_left_out_and_named(name: str, entries: Path, tmp_path: Path) -> None:
    change, words = REFUSED[name]
    (ann,) = (entries / "ddp").glob("ann-*.json")
    changed = change(json.loads(ann.read_text()))
    (entries / "changed.json").write_text(json.dumps(changed))
    done = puzzles("leaderboard", entries, "-o", tmp_path / "board")
    assert done.exit_code == 1
    assert "Left out changed.json" in done.output
    assert words in done.output
    assert "4 entries; 1 left out" in done.output, "the others are on the board"


def test_other_files_are_left_out(entries: Path, tmp_path: Path) -> None:
    (entries / "text.json").write_text("{")
    (entries / "link.json").symlink_to(tmp_path / "reference.json")
    done = puzzles("leaderboard", entries, "-o", tmp_path / "board")
    assert "text.json: it is not JSON" in done.output
    assert "link.json: it is a link" in done.output


@pytest.mark.slow
def test_names_stay_text(entries: Path, tmp_path: Path) -> None:
    puzzles("submit", tmp_path / "early.json", "--name", "<script>x</script>", "--puzzle", "ddp", "-o", entries)
    assert puzzles("leaderboard", entries, "-o", tmp_path / "board").exit_code == 0
    assert "&lt;script&gt;x" in (tmp_path / "board" / "index.html").read_text()
    assert "<script>" not in (tmp_path / "board" / "index.html").read_text()


@pytest.mark.slow
def test_traces_of_a_graded_class_are_entries(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    for name in ("ann", "ben"):
        (tmp_path / "class" / f"{name}.py").write_text((ROOT / "solutions" / "ddp.py").read_text())
    puzzles("grade", "--trust", tmp_path / "class", "--puzzle", "ddp", "--traces", tmp_path / "traces", "-j", 1)
    found, refused = collected(tmp_path / "traces")
    assert ([entry.name for entry in found], refused) == (["ann", "ben"], [])


def test_a_solution_is_submitted_with_its_run_and_without_its_code(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("SECRET = 1\n" + (ROOT / "solutions" / "ddp.py").read_text())
    done = puzzles("submit", tmp_path / "mine.py", "--puzzle", "ddp", "--name", "Ann", "-o", tmp_path)
    assert "ddp, 5.1 timesteps (target < 6), 1,835,008 elements" in done.output
    assert "786,432 elements sent" in done.output
    (file,) = (tmp_path / "ddp").iterdir()
    assert "SECRET" not in file.read_text()
    for words, said in (
        (("--puzzle", "fsdp"), "no fsdp"),
        (("--puzzle", "FSDP2"), "there is no puzzle"),
        ((), "'mine'"),
    ):
        refused = puzzles("submit", tmp_path / "mine.py", "--name", "Ann", "-o", tmp_path, *words)
        assert refused.exit_code == 1
        assert said in refused.output, refused.output


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("urls", "source"),
    [
        ({}, f"./training_puzzles-{VERSION}-py3-none-any.whl"),
        ({"Source": "https://github.com/acme/x"}, f"git+https://github.com/acme/x@v{VERSION}"),
    ],
)
def test_the_workflow_runs_commands_that_exist_and_pins_the_version(
    urls: dict[str, str], source: str, entries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address, "_addresses", lambda: urls)
    file = tmp_path / ".github" / "workflows" / "board.yml"
    result = puzzles("leaderboard", entries, "-o", tmp_path / "b", "--workflow", file, "--title", "A b")
    assert result.exit_code == 0
    text = file.read_text()
    assert f"pip install {source}\n" in text
    assert ("put that file there" in result.output) == (not urls)
    (command,) = re.findall(r"run: (puzzles .*)", text)
    assert command == "puzzles leaderboard entries -o board --title 'A b'"
    assert "contents: read" in text


# --- Records ---


REFERENCE = """
[[records]]
timesteps = 5.1
peak_memory = 1_835_008
by = "solutions/relay.py"
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "week3"
    file, *_ = begin("relay", "schedule", folder)
    file.write_text(f"{file.read_text()}[targets]\ntime = 5\nmemory = 1_800_000\n{REFERENCE}")
    return folder


@pytest.mark.slow
def test_an_entry_becomes_a_record_of_an_own_puzzle_and_decides_the_third_star(own: Path, tmp_path: Path) -> None:
    better = (RECORDS / "ddp_update_before_next_backward.py").read_text().replace("ddp", "relay")
    (tmp_path / "better.py").write_text(better)
    submit = ("submit", tmp_path / "better.py", "--puzzle", "relay", "--name", "Ann", "--puzzles", own, "-o", tmp_path)
    assert puzzles(*submit).exit_code == 0
    (entry,) = (tmp_path / "relay").iterdir()
    with folder_added(own):
        assert grade_file(str(own / "solutions" / "relay.py"), [find("relay")]).verdicts[0].stars == 3
    done = puzzles("record", entry, "--puzzles", own)
    assert done.exit_code == 0, done.output
    assert "by Ann" in done.output
    assert "relay, data parallelism, 5.1 timesteps" in done.output
    with folder_added(own):
        (verdict,) = grade_file(str(own / "solutions" / "relay.py"), [find("relay")]).verdicts
        assert (verdict.status, verdict.stars) == ("passed", 2), "the record is better now"
        (row,) = rows_of(own / "records")
        filed = read_entry(own / "records" / str(row["file"]))
        assert (row["timesteps"], row["peak_memory"], row["traffic"]) == filed.point
    again = puzzles("record", entry, "--puzzles", own)
    assert again.exit_code == 1
    assert "a known record is as good" in again.output


def test_the_reference_of_an_own_puzzle_is_no_new_record(own: Path, tmp_path: Path) -> None:
    submit = ("submit", own / "solutions" / "relay.py", "--name", "Ann", "--puzzles", own, "-o", tmp_path)
    assert puzzles(*submit).exit_code == 0
    (entry,) = (tmp_path / "relay").iterdir()
    known = puzzles("record", entry, "--puzzles", own)
    assert known.exit_code == 1
    assert "a known record is as good: 5.1 timesteps and 1,835,008 elements (solutions/relay.py)" in known.output
    file = own / "relay.toml"
    file.write_text(file.read_text().replace(REFERENCE, ""))
    unknown = puzzles("record", entry, "--puzzles", own)
    assert unknown.exit_code == 1
    assert f"{file} does not state its figures" in unknown.output
    assert f"'puzzles check {own} --write' adds them" in unknown.output
    assert not (own / "records").exists()


def test_a_record_of_a_shipped_puzzle_is_filed_with_the_others(
    entries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ann,) = (entries / "ddp").glob("ann-*.json")
    refused = puzzles("record", ann)
    assert refused.exit_code == 1
    known = "solutions/records/ddp_update_before_next_backward.py"
    assert f"5.1 timesteps, 1,441,792 elements and 786,432 elements sent ({known}, data parallelism)" in refused.output
    assert not FOUND.exists() or ann.name not in {path.name for path in FOUND.iterdir()}
    entry = read_entry(ann)
    bare = Entry(_without_records(entry.puzzle), entry.name, entry.trace, entry.verdict)
    monkeypatch.setattr(track_of("ddp"), "found_folder", tmp_path / "found")
    monkeypatch.setattr(found_module, "FOUND", tmp_path / "found")
    file = take_over_module.take_over(bare)
    assert file.parent == tmp_path / "found"
    assert PUZZLES["ddp"].goal.records[-1].by == file.name
    assert PUZZLES["fsdp"] == with_found(PUZZLES["fsdp"], tmp_path / "nothing")


def _without_records(puzzle: Any) -> Any:
    from dataclasses import replace

    return replace(puzzle, goal=replace(puzzle.goal, records=()))


def test_every_found_record_of_the_game_is_what_its_trace_shows() -> None:
    """Those that `puzzles record` has filed."""
    rows = rows_of(FOUND)
    assert {str(row["file"]) for row in rows} | {INDEX} >= (
        {p.name for p in FOUND.iterdir()} if FOUND.exists() else set()
    )
    for row in rows:
        entry = read_entry(FOUND / str(row["file"]))
        said = (row["puzzle"], row["timesteps"], row["peak_memory"], row["family"], row["name"])
        assert said == (entry.puzzle.slug, *entry.point[:2], entry.verdict.family, entry.name)


def test_a_plan_is_an_entry_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slug = "llama_8b_16"
    (tmp_path / f"{slug}.json").write_text(trace_of(ROOT / "solutions" / "plan" / f"{slug}.py", slug))
    done = puzzles("submit", tmp_path / f"{slug}.json", "--name", "Ann", "-o", tmp_path / "entries")
    assert "seconds a step" in done.output, done.output
    made = puzzles("leaderboard", tmp_path / "entries", "-o", tmp_path / "board")
    assert made.exit_code == 0, made.output
    board = json.loads((tmp_path / "board" / "board.json").read_text())
    ((row,),) = [one["front"] for one in board["puzzles"]]
    assert (row["name"], row["stars"]) == ("Ann", 3)
    page = (tmp_path / "board" / row["run"]).read_text(encoding="utf-8")
    assert "<svg" in page
    assert "Ann" not in page
    assert "<th>seconds a step" in (tmp_path / "board" / "index.html").read_text(encoding="utf-8").replace(
        " scope=col", ""
    )
    assert "Timesteps" not in capsys.readouterr().out, "drawing a plan prints nothing"
