"""Pictures, pages and files of a profiled run."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lib import PuzzleError
from lib.pipelines.torch_csv import read_csv
from lib.profiles.reading import FRAMEWORKS
from puzzles import profile
from puzzles.player.profile import ProfiledRun
from puzzles.screens import profile_pictures as profiled
from puzzles.screens.profile_pictures import bar_of, draw_profile, profile_page, views
from tests.support.commands import puzzles
from tests.support.profiles import TRACES, sources, studied, traces


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", ["1f1b_slow", "interleaved", "zbv", "dualpipev"])
def test_marks_are_the_cells_and_no_arrow_points_back(case: str) -> None:
    found = studied(case)
    measured, replay = views(found)[0].values()
    spans = {cell: span for row in found.chosen.step.spans for span in row for cell in span.cells}
    for scene in (measured, replay):
        for link in scene.links:
            assert link.receive is not None
            assert link.send.end <= link.receive.start + 1e-9
    letters = {"forward": "F", "backward": "B", "backward_input": "I", "backward_weight": "W"}
    for mark in measured.marks:
        if mark.op.name in letters:
            (batch,) = mark.op.batches
            (span,) = [span for cell, span in spans.items() if cell == (mark.op.layer, letters[mark.op.name], batch)]
            assert span.start - 1e-6 <= mark.start <= mark.end <= span.end + 1e-6
    assert measured.end == pytest.approx(found.chosen.step.length)
    assert replay.end <= measured.end


def test_the_bar_is_the_whole_step() -> None:
    for case in ("1f1b_slow", "zbv"):
        assert sum(bar_of(studied(case)).values()) == pytest.approx(100)


def test_a_picture_shows_measured_above_replayed_and_the_causes() -> None:
    picture = draw_profile(studied("1f1b_slow"), title="my run")
    text = " ".join(ElementTree.fromstring(picture.in_svg()).itertext())
    assert text.index("Measured: 4") < text.index("Replayed with the median")
    for words in ("my run", "uneven stages 1", "computing 5", "Rank 2 computes 4"):
        assert words in text


@pytest.mark.slow
@pytest.mark.parametrize("case", ["1f1b_slow", "1f1b_jitter", "zb_interleaved"])
def test_every_finding_of_a_page_leads_to_its_cell(case: str) -> None:
    found = studied(case)
    page = profile_page(found)
    data = json.loads(re.search(r'id="run">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    marks = [int(number) for number in re.findall(r'data-mark="(\d+)"', page)]
    assert len(marks) == len(found.findings) > 0
    for number, one in zip(marks, found.findings):
        assert data["start"][number] == pytest.approx(one.at, abs=1e-6)
        assert data["rank"][number] == one.rank
    assert page.count('<canvas id="timeline"') == 2
    assert data["memory"]["most"] == 0
    assert "://" not in page.replace("http://www.w3.org", "")


@pytest.mark.slow
def test_too_many_cells_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiled, "MOST_DRAWN", 10)
    with pytest.raises(PuzzleError, match="64 cells, and at"):
        draw_profile(studied("1f1b"))
    shown = ProfiledRun(studied("1f1b"))._repr_mimebundle_()
    assert "<svg" not in shown["text/html"]
    assert "Schedule: 1F1B" in shown["text/html"]


@pytest.mark.slow
def test_a_profile_in_a_notebook() -> None:
    found = profile(TRACES / "1f1b_slow")
    assert isinstance(found, ProfiledRun)
    shown = found._repr_mimebundle_()
    assert "Schedule: 1F1B (Narayanan et" in shown["text/plain"]
    assert "<svg" in shown["text/html"]
    assert read_csv(found.csv("measured")) == studied("1f1b_slow").chosen.step.table
    assert found.record["findings"][0]["kind"] == "slow rank"
    assert profile(*sources(traces("1f1b_slow"))).record["ladder"] == found.record["ladder"]
    shares = profile(TRACES / "ddp")
    assert "Rank 2 is waited" in shares.text
    assert "<svg" not in shares._repr_mimebundle_()["text/html"]
    with pytest.raises(PuzzleError, match="files have no pipeline"):
        shares.picture()
    with pytest.raises(PuzzleError, match="there is no nowhere"):
        profile("nowhere")
    with pytest.raises(PuzzleError, match="got 'best'"):
        found.csv("best")


@pytest.mark.slow
def test_the_command_writes_all_files(tmp_path: Path) -> None:
    names = ["run.html", "run.svg", "run.csv", "run.json", "run.txt"]
    given = [argument for name in names for argument in ("-o", str(tmp_path / name))]
    done = puzzles("profile", str(TRACES / "1f1b_slow"), *given)
    assert done.exit_code == 0, done.output
    assert "43.7% of the step" in " ".join(done.output.split())
    assert "21.1 order, 17.9 uneven" in " ".join(done.output.split())
    assert len(done.output.splitlines()) <= 40 + len(names)
    better = studied("1f1b_slow").prospect.better
    assert better is not None
    assert read_csv((tmp_path / "run.csv").read_text()) == better.table
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["version"] == 1
    assert record["better"]["rows"] == str(better.table).splitlines()
    assert "Next: puzzles profile" in (tmp_path / "run.txt").read_text()
    assert (tmp_path / "run.html").read_text().startswith("<!doctype html>")


@pytest.mark.slow
def test_the_command_as_json_and_with_the_measured_order(tmp_path: Path) -> None:
    target = tmp_path / "run.csv"
    done = puzzles("profile", str(TRACES / "zbv"), "--json", "--order", "measured", "-o", str(target))
    assert done.exit_code == 0
    assert json.loads(done.stdout)["schedule"]["name"] == "ZB-V"
    assert read_csv(target.read_text()) == studied("zbv").chosen.step.table


@pytest.mark.parametrize(
    "case", ["ddp", *(pytest.param(c, marks=pytest.mark.slow) for c in ("interleaved_steps", "zb_interleaved"))]
)
def test_reports_fit_a_page(case: str) -> None:
    done = puzzles("profile", str(TRACES / case))
    assert done.exit_code == 0
    assert len(done.output.splitlines()) <= 40


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_hooks_are_printed_and_are_python(name: str) -> None:
    done = puzzles("profile", "--hooks", name)
    assert done.exit_code == 0
    compile(done.output, "name_cells.py", "exec")
    assert "not tried" in done.output.lower()
