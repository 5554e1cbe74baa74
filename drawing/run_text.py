"""A run in words: its operations and waits, for tooltips, captions and screen readers; and all of it as text, for
terminals and failing tests, a line per row of ranks, time from left to right.

Words are made once, from the scene: the SVG, the web page, the viewer's JSON and the text all use them. What a wait is
for comes from the report, and is not found again. In the text, a column is a share of time. If several operations share
it, the one that takes most of it is shown; what takes no time appears only where there is room. A long run is no finer
than its shortest operation. Letters are those of the glyphs, so that a reader learns them once.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap

from drawing.glyphs import batches_text, glyph_of
from drawing.pen import tenths_text, time_text
from drawing.scene import (
    Band,
    Colouring,
    Gap,
    LaneMarks,
    Mark,
    MarkRow,
    RunLike,
    Scene,
    has_memory,
    scene_from,
    sent_by_kind,
)
from lib import (
    COLLECTIVES,
    COMPUTING,
    DeadlockError,
    Goal,
    IncompleteError,
    PuzzleError,
    Report,
    group_of,
    in_group,
    root_of,
)
from lib.ledger.algebra import counted

MAX_DESCRIBED = 8

SHARED = "xN: N ranks do the same; peers and microbatches are the first one's"
"""What a legend says about rows with a count."""

MAX_KNOWN = 40
"""The longest name of a schedule that fits a title."""


def describe(mark: Mark, who: str = "") -> str:
    """A mark in words: operation, place, time, and the rank's memory then; `who` is the rank, or its row."""
    memory = "" if mark.memory is None else f", {mark.memory:,} elements"
    when = f"t={time_text(mark.start)} to {time_text(mark.end)}"
    return f"{who or f'rank {mark.rank}'}: {doing(mark)}, {when}{under_way(mark)}{memory}"


def under_way(mark: Mark) -> str:
    """', called at t=2, awaited at t=3.5' for an overlapped call."""
    if mark.called is None:
        return ""
    until = "never awaited" if mark.awaited is None else f"awaited at t={time_text(mark.awaited)}"
    return f", called at t={time_text(mark.called)}, {until}"


def doing(mark: Mark) -> str:
    """'forward layer 1 b0', 'send to rank 2'."""
    op = mark.op
    words = [glyph_of(op.name).name]
    if mark.again:
        words.append("again")
    if op.layer is not None:
        words.append(f"layer {op.layer}")
    if op.batches:
        words.append(batches_text(op.batches))
    if mark.partner is not None:
        words.append(f"{'to' if op.name == 'pass_to' else 'from'} rank {mark.partner}")
    if mark.tag:
        words.append(f"with tag {mark.tag}")
    if op.name in COLLECTIVES:
        words += in_group(group_of(op)).split()
    if (root := root_of(op)) is not None:
        words.append(f"{'to' if op.name == 'reduce' else 'from'} rank {root}")
    if mark.step is not None:
        words.append(f"of step {mark.step}")
    return " ".join(words)


def waited_for(gap: Gap, scene: Scene) -> Mark | None:
    """The event that ended a wait: the send of the message, or the collective on the rank that arrived last."""
    if gap.before is None:
        return None
    cause = scene.report.waits[gap.before.rank].get(gap.before.place)
    return None if cause is None else scene.at[cause]


def describe_gap(gap: Gap, who: str, scene: Scene) -> str:
    """Idle time and its reason: 'rank 1 idle, t=0 to 2.2: waits for rank 0 to send, after its forward layer 1 b0'."""
    return f"{who} idle, t={time_text(gap.start)} to {time_text(gap.end)}: {reasons(gap, scene)[1]}"


def reasons(gap: Gap, scene: Scene) -> tuple[str, str]:
    """The cause of a gap: short enough to fit into it; and in full, with what the rank did for which it waits."""
    if gap.before is None:
        if gap.stuck:
            return f"stuck {gap.stuck}", f"is stuck {gap.stuck}"
        is_over = scene.report.error is None or has_ended(scene)
        return ("done", "has nothing left to do") if is_over else ("nothing more", "nothing more happened")
    if gap.awaited is not None:
        full = f"awaits its {doing(gap.awaited)}, which runs from t={time_text(gap.awaited.start)}"
        return f"awaits {glyph_of(gap.awaited.op.name).name}", full
    cause = waited_for(gap, scene)
    if cause is None:
        return "idle", "the referee did not get this far"
    what = " to send" if cause.op.name == "pass_to" else f", the last to join this {doing(cause)}"
    before = scene.previous(cause)
    after = f", after its {doing(before)}" if before is not None else ""
    return f"waits for rank {cause.rank}", f"waits for rank {cause.rank}{what}{after}"


def has_ended(scene: Scene) -> bool:
    """True if the run ended in a deadlock in which a rank that is not stuck has returned."""
    return isinstance(scene.report.error, DeadlockError)


def name_of(scene: Scene) -> str:
    """A title for a run without one: '1F1B: 4 ranks, 6 layers, 4 microbatches', or without a name that is long."""
    known = f"{scene.known}: " if 0 < len(scene.known) <= MAX_KNOWN else ""
    ranks, steps = counted(len(scene.lanes), "rank"), scene.steps
    sizes = [ranks, counted(scene.layers, "layer"), counted(scene.trace.size.batches, "microbatch")]
    return known + ", ".join([*sizes, *([f"{steps} steps"] if steps > 1 else [])])


def summary(report: Report) -> str:
    """The three figures by which schedules are compared, each with its target, and then the others: '12.1 steps (target
    < 13) · 2,097,152 elements (target < 2.4M; rank 0, t=5) · 1,572,864 sent · makespan 12.4 · ...'."""
    goal, peak = report.goal, report.peak
    time, memory, traffic = (goal.time_text, goal.memory_text, goal.traffic_words) if goal is not None else ("", "", "")
    where = f"rank {peak.rank}, t={time_text(peak.time)}"
    return " · ".join(
        [
            f"{time_text(report.timesteps)} {report.costs.time_unit}{_with_target(time)}",
            *([f"{peak.memory:,} elements{_with_target(memory, where)}"] if has_memory(report) else []),
            *([f"{report.traffic:,} sent{_with_target(traffic)}"] if report.traffic else []),
            f"makespan {time_text(report.makespan)}",
            f"bubble {tenths_text(100 * report.bubble)}%",
            *(f"{tier} {peak.memory:,}" for tier, peak in report.peaks.items() if peak.memory),
        ]
    )


def _with_target(limit: str, *more: str) -> str:
    """' (target < 1.6M; rank 0, t=5)'; empty if there is nothing to say."""
    words = "; ".join([*([f"target {limit}"] if limit else []), *more])
    return f" ({words})" if words else ""


def error_text(report: Report) -> str:
    """The referee's error, as a sentence; empty if there is none."""
    if report.error is None:
        return ""
    if isinstance(report.error, DeadlockError):
        return report.error.problem[:1].upper() + report.error.problem[1:]
    return f"{'Not finished' if isinstance(report.error, IncompleteError) else 'Not correct'}: {report.error}"


def error_clauses(report: Report) -> list[str]:
    """The error as several lines: for a deadlock, one for each group of stuck ranks, with their call and line."""
    text = error_text(report)
    return text.split("; ") if isinstance(report.error, DeadlockError) else [text] if text else []


def titled(name: str, report: Report) -> str:
    """The title of a picture; it says if the run ended in a deadlock."""
    return f"Deadlock: {name}" if isinstance(report.error, DeadlockError) else name


def describe_run(scene: Scene) -> str:
    """A run for screen readers: its figures, its errors, and what each rank does."""
    lanes = [describe_row(row, scene) for row in scene.rows.every[:MAX_DESCRIBED]]
    more = sum(len(row.ranks) for row in scene.rows.every[MAX_DESCRIBED:])
    rest = f"And {counted(more, 'more rank')}." if more else ""
    return " ".join(filter(None, [f"{summary(scene.report)}.", error_text(scene.report), *lanes, rest]))


def describe_row(row: MarkRow, scene: Scene) -> str:
    """One row in words: the operations of a rank, its share of working time, its memory, and its longest wait."""
    lane = row.lane
    counts = Counter(glyph_of(mark.op.name).name for mark in lane.marks)
    work = ", ".join(f"{number} {name}" for name, number in counts.items()) or "nothing"
    most = max((span.memory for span in lane.memory), default=0)
    holds = f"; at most {most:,} elements" if scene.shows_memory else ""
    busy = f"{100 * scene.report.ranks[lane.rank].busy:.0f}% busy"
    sent = scene.report.sent.of(lane.rank)
    sends = f"; sends {sent:,} elements" if sent else ""
    gap, waits = max(lane.gaps, key=lambda gap: gap.end - gap.start, default=None), ""
    if gap is not None and gap.before is not None and gap.end - gap.start >= scene.end / 10:
        waits = f"; idle from t={time_text(gap.start)} to {time_text(gap.end)}, {reasons(gap, scene)[0]}"
    return f"{row.first.capitalize()}: {work}; {busy}{holds}{sends}{waits}."


# --- All of a run ---

TEXT_WIDTH, MIN_WIDTH = 100, 40
IDLE = "."
TENTHS = "_123456789"
"""Tenths of the highest memory."""
MAX_ROWS = 128


def text(
    run: RunLike, title: str = "", width: int = TEXT_WIDTH, goal: Goal | None = None, colour: str = "layer"
) -> str:
    """A run as text whose lanes are at most `width` columns wide.

    Text has no colours; but with `colour` 'microbatch' or 'operation', the number behind a letter is the microbatch, as
    in a picture.

    Raises:
        PuzzleError: the width is too small for a picture, or there is no such `colour`.
    """
    return text_of(scene_from(run, goal, colour), title, width)


def text_of(scene: Scene, title: str = "", width: int = TEXT_WIDTH) -> str:
    """A scene as text: title, figures, one line per rank, memory and traffic below, a legend."""
    if width < MIN_WIDTH:
        raise PuzzleError(f"a text picture is at least {MIN_WIDTH} columns wide; got {width}")
    shown, hidden = scene.rows.every[:MAX_ROWS], scene.rows.every[MAX_ROWS:]
    head = max(len("memory"), *(len(row.label) for row in shown), *map(len, scene.streams[1:])) + 1
    columns = width - head
    # A long run is no finer than its shortest operation; a short one is stretched to whole columns per step.
    step = max(1, int(columns / scene.end)) if 0 < scene.end <= columns else columns / max(scene.end, 1.0)
    more = sum(len(row.ranks) for row in hidden)
    most = scene.most
    name = titled(title or name_of(scene), scene.report)
    known = "" if scene.known in name else scene.known
    head_lines = [name, known, summary(scene.report), *error_clauses(scene.report)]
    memory = wrap(f"memory of each rank, in tenths of {most:,} elements", width) if scene.shows_memory else []
    memory += [row.label.ljust(head) + memory_text(row.lane, most, step) for row in shown if memory]
    rows = [
        *(line for words in head_lines for line in wrap(words, width)),
        scene.time_unit.ljust(head) + axis(scene.end, step, columns),
        *(line for row in shown for line in row_lines(row, scene, head, step)),
        *([f"and {counted(more, 'more rank')}"] if more else []),
        *memory,
        *sent_lines(scene, shown, head, width),
        *wrap(legend_line(scene, step), width),
    ]
    return "\n".join(line.rstrip() for line in rows) + "\n"


def axis(end: float, step: float, columns: int) -> str:
    """Round times, at least six columns apart."""
    gap = next(g for g in (b * 10**e for e in range(12) for b in (1, 2, 5)) if g * step >= 6)
    line = ""
    for time in range(0, int(end) + 1, gap):
        place = int(time * step)
        if place + len(str(time)) <= columns:
            line = line.ljust(place) + str(time)
    return line


def row_lines(row: MarkRow, scene: Scene, head: int, step: float) -> Iterator[str]:
    """A line for a rank's computation, and one for each communication stream; below each, the training steps if there
    are several."""
    for stream, name in enumerate(scene.streams):
        words = name if stream else row.label
        yield words.ljust(head) + row_text(row.lane.on(stream), scene, step, " " if stream else IDLE)
        bands = row.lane.bands(stream, scene.end)
        if bands:
            yield "step".ljust(head) + bands_text(bands, step)


def bands_text(bands: Sequence[Band], step: float) -> str:
    """Each training step from where it begins: '0-----1-----'."""
    line = ""
    for band in bands:
        room = round(band.end * step) - len(line)
        number = str(band.step)
        line += (number if len(number) <= room else "").ljust(max(room, 0), "-")
    return line


def row_text(marks: Sequence[Mark], scene: Scene, step: float, idle: str) -> str:
    """The operations of one stream. If several share a column, the one that takes most of it is shown."""
    cells = [idle] * max(1, round(scene.end * step))
    taken = [0.0] * len(cells)
    for mark in marks:
        first, last = mark.start * step, mark.end * step
        if mark.end == mark.start:
            continue
        letters = wording(mark, max(1, int(last - first)), scene.colouring)
        start = min(int(first + 0.5 if last - first >= 1 else first), len(cells) - 1)
        for i in range(start, min(max(int(last + 0.5), start + 1), len(cells))):
            share = min(last, i + 1) - max(first, i)
            if share > taken[i]:
                cells[i], taken[i] = letters[i - start] if i - start < len(letters) else "-", share
    for mark in marks:  # what takes no time shows only where there is room for it
        place = min(int(mark.start * step), len(cells) - 1)
        if mark.end == mark.start and cells[place] in (idle, "-"):
            cells[place] = wording(mark, 1, scene.colouring)
    return "".join(cells)


def wording(mark: Mark, room: int, colouring: Colouring) -> str:
    """As much of 'F0b1' as fits, or of 'F1' if the microbatch comes first; numbers are not cut."""
    letter, batches = letter_of(mark.op.name), batches_text(mark.op.batches)
    layer = "" if mark.op.layer is None or glyph_of(mark.op.name).letter else mark.layer_text
    of_batch = colouring.shows_batches and mark.op.name in COMPUTING and batches
    for words in (letter + batches[1:],) if of_batch else (letter + layer + batches, letter + layer):
        if len(words) <= room:
            return words
    return letter


def letter_of(name: str) -> str:
    return glyph_of(name).letter or glyph_of(name).mark[:1]


def memory_text(lane: LaneMarks, most: int, step: float) -> str:
    """Memory in tenths: the memory held during most of a column."""
    line = ""
    for span in lane.memory:
        until = round(span.end * step)
        level = TENTHS[min(9, 10 * span.memory // most)] if most else TENTHS[0]
        line += level * (until - len(line))
    return line


def sent_lines(scene: Scene, rows: Sequence[MarkRow], head: int, width: int) -> Iterator[str]:
    """What each rank sends, as a bar of the letters of its calls; empty if no rank sends."""
    most = scene.report.traffic
    if not most:
        return
    columns = width - head - len(f" {most:,}")
    yield from wrap(f"elements that each rank sends, a letter for each {most / columns:,.0f}", width)
    for row in rows:
        line, sent = "", 0
        for kind, elements in sent_by_kind(scene, row.lane.rank).items():
            sent += elements
            line += letter_of(kind) * (round(columns * sent / most) - len(line))
        yield f"{row.label.ljust(head)}{line} {sent:,}"


def legend_line(scene: Scene, step: float) -> str:
    """Letters and names of the operations in the run, and the length of a column."""
    names = dict.fromkeys(mark.op.name for mark in scene.rows.marks)
    found = [f"{letter_of(name)} {glyph_of(name).name}" for name in names]
    computed = (mark for mark in scene.rows.marks if mark.op.name in COMPUTING and scene.colouring.shows_batches)
    if any(len(wording(mark, int((mark.end - mark.start) * step), scene.colouring)) > 1 for mark in computed):
        found.append("number: the microbatch")
    if any(lane.gaps for lane in scene.lanes):
        found.append(f"{IDLE} idle")
    if scene.steps > 1:
        found.append("step: the training step of the operations above it")
    if scene.rows.are_shared:
        found.append(SHARED)
    column = tenths_text(1 / step) if 1 / step >= 10 else f"{1 / step:.3g}"
    return ", ".join([*found, f"a column is {column} {scene.time_unit}"])
