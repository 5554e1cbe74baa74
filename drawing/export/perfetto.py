"""A run as JSON for trace viewers: one thread per rank, flow arrows for communication.

The format is from Chrome's tracing tool, and Perfetto reads it too ("Trace Event Format", Google 2016). One step
is shown as one millisecond.
"""

import json
from collections.abc import Iterator
from typing import Any

from drawing.runs.captions import describe_gap, error_text, summary
from drawing.runs.glyphs import batches_text, glyph_of
from drawing.runs.marks import LaneMarks, Mark
from drawing.runs.scene import Scene
from lib import COLLECTIVES, group_of

MICROSECONDS = 1000
RANKS, MEMORY = 1, 2
"""The two groups (processes) in which viewers show threads and counters."""


def viewer_json(scene: Scene, title: str = "") -> str:
    """The trace, one event per line, so that files can be compared."""
    head = {"title": title, "summary": summary(scene.report), "verdict": error_text(scene.report), "step": "1 ms"}
    events = ",\n".join(json.dumps(event, separators=(",", ":")) for event in all_events(scene))
    return f'{{"displayTimeUnit":"ms","otherData":{json.dumps(head)},"traceEvents":[\n{events}\n]}}\n'


def all_events(scene: Scene) -> Iterator[dict[str, Any]]:
    yield process(RANKS, "ranks")
    if scene.shows_memory:
        yield process(MEMORY, "memory in elements")
    for lane in scene.lanes:
        for stream, name in enumerate(scene.streams):
            row = place(lane.rank, stream, scene)
            words = f"rank {lane.rank}{f' {name}' if stream else ''}"
            yield {"ph": "M", "name": "thread_name", **row, "args": {"name": words}}
            yield {"ph": "M", "name": "thread_sort_index", **row, "args": {"sort_index": row["tid"] - 1}}
    for lane in scene.lanes:
        yield from (operation(mark, scene) for mark in lane.marks)
        yield from waits(lane, scene)
        yield from counters(lane)
    # A message is an arrow from the send to the receive, if there is one; a collective a line through all its members.
    messages = [("message", (link.send, link.receive) if link.receive else ()) for link in scene.links]
    for number, (name, marks) in enumerate([*messages, *((tie.name, tie.members) for tie in scene.ties)]):
        for i, mark in enumerate(marks):
            phase = "s" if i == 0 else "f" if i == len(marks) - 1 else "t"
            where = place(mark.rank, mark.stream, scene)
            what = {"ph": phase, "name": name, "cat": "communication", **where}
            yield {**what, **({"bp": "e"} if phase == "f" else {}), "ts": at(mark.start), "id": number}


def process(number: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": number, "tid": 1, "args": {"name": name}}


def place(rank: int, stream: int, scene: Scene) -> dict[str, int]:
    """Process and thread; viewers reserve thread 0."""
    return {"pid": RANKS, "tid": rank * len(scene.streams) + stream + 1}


def at(time: float) -> int:
    """A time in steps as whole microseconds."""
    return round(time * MICROSECONDS)


def operation(mark: Mark, scene: Scene) -> dict[str, Any]:
    op = mark.op
    layer = "" if op.layer is None else str(op.layer)
    details = {
        "layer": op.layer,
        "microbatches": sorted(op.batches) or None,
        "partner": mark.partner,
        "tag": mark.tag or None,
        "group": group_of(op) if op.name in COLLECTIVES else None,
        "step": mark.step,
        "called": mark.called,
        "awaited": mark.awaited,
        "again": mark.again or None,
        "memory": mark.memory,
        "line": op.line or None,
    }
    return {
        "ph": "X",
        "name": f"{glyph_of(op.name).mark}{layer} {batches_text(op.batches)}".rstrip(),
        "cat": op.name,
        "ts": at(mark.start),
        "dur": at(mark.end) - at(mark.start),
        **place(mark.rank, mark.stream, scene),
        "args": {key: value for key, value in details.items() if value is not None},
    }


def waits(lane: LaneMarks, scene: Scene) -> Iterator[dict[str, Any]]:
    """Idle time, with what the rank waited for."""
    for gap in lane.gaps:
        if gap.before is not None:
            when = {"ts": at(gap.start), "dur": at(gap.end) - at(gap.start)}
            why = {"why": describe_gap(gap, f"rank {lane.rank}", scene)}
            yield {"ph": "X", "name": "idle", "cat": "idle", **when, **place(lane.rank, 0, scene), "args": why}


def counters(lane: LaneMarks) -> Iterator[dict[str, Any]]:
    """Memory by kind, from the start of each level."""
    for span in lane.memory:
        elements = {kind: sum(share) for kind, share in span.kinds._asdict().items()}
        yield {"ph": "C", "name": f"rank {lane.rank}", "pid": MEMORY, "ts": at(span.start), "args": elements}
