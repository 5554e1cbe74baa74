"""The other forms of a run: text, JSON for trace viewers, a web page; the format follows the file's ending."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from docs.generate import gallery
from drawing import Timeline, draw, draw_pareto, save, text
from drawing.files import OF_A_RUN, viewer_json
from drawing.html import web_page
from drawing.scene import needs, scene_of
from lib import Model, PuzzleError, run
from puzzles.catalog.schedule import PUZZLES
from tests.screens.texts import approved, approved_refusal
from tests.support import CLASSICS, Classic

HOSTILE = "\"><script>alert('x')</script> & </script><!--"


def nothing(model: Model) -> None:
    """Every rank is idle."""


def timeline(slug: str) -> Timeline:
    return draw(gallery.solved(slug), slug)


# --- Text ---


def test_a_run_as_text() -> None:
    approved("forms", "a run as text", text(gallery.solved("grad_accum"), "One at a time", 60))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_text_keeps_to_its_width(classic: Classic, width: int) -> None:
    lines = text(run(classic.solution, *classic.size), width=width).splitlines()
    assert max(map(len, lines)) <= width + 1
    lanes = [line for line in lines if line.startswith("rank ")]
    sends = classic.size.ranks > 1
    assert len(lanes) == (3 if sends else 2) * classic.size.ranks


def test_text_has_a_bar_of_what_each_rank_sends() -> None:
    lines = text(gallery.solved("gpipe"), width=60).splitlines()
    heading = lines.index("elements that each rank sends, a letter for each 24,385")
    assert lines[heading + 1 : heading + 3] == [f"rank 0 {'s' * 22} 524,288", f"rank 1 {'s' * 43} 1,048,576"]
    both = f"rank 3 {'<' * 29}{'>' * 14} 3,538,944"
    assert both in text(gallery.solved("fsdp"), width=60).splitlines(), "a weight is gathered twice"
    assert "sends" not in text(gallery.solved("basic")), "one rank sends nothing"


def test_text_has_a_lane_for_each_rank_and_says_what_is_idle() -> None:
    written = text(gallery.solved("gpipe"), width=80)
    assert "rank 3 ..............F-F7" in written
    assert ". idle" in written
    assert ". idle" not in text(gallery.solved("fsdp"))


@pytest.mark.slow
def test_text_of_runs_that_are_hard_to_draw() -> None:
    assert "rank 0 ." in text(run(nothing, 2, 2, 2))
    assert "Not finished" in text(run(nothing, 2, 2, 2))
    many = text(run(gallery.staircase, 1, 1, 130), width=60)
    assert "and 2 more ranks" in many
    assert len(text(run(gallery.forward_often, 1, 1, 4)).splitlines()[4]) <= 100


def test_text_that_is_too_narrow_is_refused() -> None:
    with approved_refusal("forms", "text that is too narrow is refused", PuzzleError):
        text(gallery.solved("ddp"), width=39)


# --- JSON for trace viewers ---


def viewed(slug: str) -> dict[str, Any]:
    return json.loads(viewer_json(scene_of(gallery.solved(slug).trace), slug))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
def test_the_viewer_gets_each_event_once_and_each_rank_by_name(classic: Classic) -> None:
    outcome = run(classic.solution, *classic.size)
    events = viewed(classic.slug)["traceEvents"]
    work = Counter(event["tid"] - 1 for event in events if event["ph"] == "X" and event["name"] != "idle")
    assert work == {rank: len(outcome.trace.events(rank)) for rank in range(classic.size.ranks)}
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {rank + 1: f"rank {rank}" for rank in range(classic.size.ranks)}


def test_times_memory_and_waits_in_the_viewer() -> None:
    events = viewed("gpipe")["traceEvents"]
    first = next(event for event in events if event["ph"] == "X")
    assert (first["name"], first["ts"], first["dur"]) == ("F0 b0", 0, 1000)
    assert first["args"].pop("line") > 0
    assert first["args"] == {"layer": 0, "microbatches": [0], "memory": 1_179_648}
    counters = [event for event in events if event["ph"] == "C" and event["name"] == "rank 1"]
    assert max(sum(event["args"].values()) for event in counters) == 4_194_304
    idle = next(event for event in events if event["name"] == "idle")
    approved("forms", "times memory and waits in the viewer", idle["args"]["why"], "waits for rank 1")


def test_messages_and_collectives_have_flow_arrows() -> None:
    events = viewed("pipeline_fsdp")["traceEvents"]
    slices = {(e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    flows = [event for event in events if event["ph"] in "stf"]
    assert all((event["tid"], event["ts"]) in slices for event in flows)
    by_id: dict[int, list[str]] = {}
    for event in flows:
        by_id.setdefault(event["id"], []).append(event["ph"])
    shapes = Counter("".join(phases) for phases in by_id.values())
    assert shapes == {"sf": 24, "s" + 14 * "t" + "f": 12}


# --- What needs what ---


def described(scene: Any, numbers: Any) -> list[str]:
    marks = list(scene.marks)
    return [f"{marks[i].rank} {marks[i].op.name} {marks[i].op.layer}" for i in numbers]


def test_needs_go_through_what_takes_no_time() -> None:
    scene = scene_of(gallery.solved("gpipe").trace)
    found = needs(scene)
    update = next(mark for mark in scene.marks if mark.op.name == "update")
    assert described(scene, found[update.number]) == ["0 backward 0"] * 4  # summed with '+', batch by batch


def test_a_receive_needs_its_send_and_a_collective_its_group() -> None:
    scene = scene_of(gallery.solved("pipeline_fsdp").trace)
    found = needs(scene)
    receive = next(mark for mark in scene.marks if mark.op.name == "receive")
    assert described(scene, found[receive.number]) == ["1 pass_to None"]
    assert [len(tie.members) for tie in scene.ties] == [16] * 12


def test_nothing_needs_what_comes_later() -> None:
    for classic in CLASSICS:
        scene = scene_of(run(classic.solution, *classic.size).trace)
        marks = list(scene.marks)
        assert all(marks[j].end <= marks[i].start for i, list_ in enumerate(needs(scene)) for j in list_)


# --- The web page ---


class Reader(HTMLParser):
    """The parts of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.texts: dict[str, str] = {}
        self._open = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self._open = tag
        self.links += [value or "" for name, value in attributes if name in ("src", "href", "action")]

    def handle_data(self, data: str) -> None:
        self.texts[self._open] = self.texts.get(self._open, "") + data


def test_the_page_loads_nothing_from_anywhere() -> None:
    source = web_page(scene_of(gallery.solved("gpipe").trace), "GPipe")
    reader = Reader(source)
    assert reader.links == []
    assert not re.search(r"https?://|@import|url\(|fetch\(|XMLHttp|import\(", source)
    assert "default-src 'none'" in source


def test_hostile_text_comes_out_as_text() -> None:
    async def schedule(model: Model) -> None:
        model.weights[HOSTILE], _ = model.load_weights(0)
        await model.pass_to(0, HOSTILE)

    source = web_page(scene_of(run(schedule, 1, 1, 1).trace), HOSTILE)
    reader = Reader(source)
    assert reader.texts["title"].startswith(HOSTILE)
    assert reader.texts["h1"].startswith(HOSTILE)
    assert reader.tags["script"] == 2
    assert "<script>alert" not in source


def test_the_page_has_a_text_alternative_and_names_for_its_controls() -> None:
    reader = Reader(web_page(scene_of(gallery.solved("gpipe").trace), "GPipe"))
    assert "rank 0 F0" in reader.texts["pre"]
    assert "33.3 steps" in reader.texts["canvas"]
    assert (reader.tags["button"], reader.tags["canvas"]) == (6, 1)


# --- Files ---


def test_the_format_follows_the_ending(tmp_path: Path) -> None:
    picture = timeline("ddp")
    starts = {
        "svg": "<svg ",
        "html": "<!doctype html>",
        "json": '{"displayTimeUnit"',
        "txt": "ddp\nData parallelism\n5.1 steps",
    }
    for ending, start in starts.items():
        file = tmp_path / f"ddp.{ending}"
        save(picture, file)
        assert file.read_text(encoding="utf-8").startswith(start)
        first = file.read_bytes()
        save(timeline("ddp"), file)
        assert file.read_bytes() == first


def test_a_run_is_saved_without_drawing_it_first(tmp_path: Path) -> None:
    outcome = gallery.solved("ddp")
    for ending in (".svg", *OF_A_RUN):
        save(timeline("ddp"), tmp_path / f"drawn{ending}")
        save(outcome, tmp_path / f"run{ending}", "ddp")
        assert (tmp_path / f"drawn{ending}").read_bytes() == (tmp_path / f"run{ending}").read_bytes()
    save(outcome.models, tmp_path / "x.svg", goal=PUZZLES["ddp"].goal, critical=True)
    assert "critical path" in (tmp_path / "x.svg").read_text(encoding="utf-8")
    with approved_refusal("forms", "a run is saved without drawing it first", PuzzleError):
        save(3, tmp_path / "x.html")  # type: ignore[arg-type]


def test_what_is_no_run_has_no_page(tmp_path: Path) -> None:
    picture = draw_pareto(PUZZLES["ddp"].goal)
    for ending in (".html", ".json", ".txt"):
        with pytest.raises(PuzzleError, match=f"written as {ending}; use"):
            save(picture, tmp_path / f"x{ending}")


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with approved_refusal("forms", "a name that no file can have is refused", PuzzleError):
        save(timeline("ddp"), "a\0b.svg")
