"""A run as text, for terminals and failing tests: one line per row of ranks, time from left to right."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from drawing.number_text import tenths_text
from lib import COMPUTING, Goal, PuzzleError
from lib.values.algebra import counted

from .captions import SHARED, error_clauses, name_of, summary, titled
from .colouring import Colouring
from .glyphs import batches_text, glyph_of
from .marks import Band, LaneMarks, Mark
from .memory import sent_by_kind
from .rows import MarkRow
from .scene import RunLike, Scene, scene_from

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
    rows = [
        *(line for words in head_lines for line in wrap(words, width)),
        scene.time_unit.ljust(head) + axis(scene.end, step, columns),
        *(line for row in shown for line in row_lines(row, scene, head, step)),
        *([f"and {counted(more, 'more rank')}"] if more else []),
        *(memory_lines(shown, most, head, step, width) if scene.shows_memory else ()),
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


def memory_lines(rows: Sequence[MarkRow], most: int, head: int, step: float, width: int) -> Iterator[str]:
    yield from wrap(f"memory of each rank, in tenths of {most:,} elements", width)
    for row in rows:
        yield row.label.ljust(head) + memory_text(row.lane, most, step)


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
