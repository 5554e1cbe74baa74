"""Operations, waits and runs in words, for tooltips, captions and screen readers."""

from collections import Counter

from drawing.number_text import tenths_text, time_text
from lib import COLLECTIVES, DeadlockError, IncompleteError, Report, group_of, in_group, root_of
from lib.values.algebra import counted

from .glyphs import batches_text, glyph_of
from .marks import Gap, Mark
from .rows import MarkRow
from .scene import Scene, has_memory

MAX_ROWS = 8

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
    return f"{who} idle, t={time_text(gap.start)} to {time_text(gap.end)}: {reason(gap, scene)}"


def reason(gap: Gap, scene: Scene) -> str:
    """The cause of a gap: the event that ended it, and what its rank did before that."""
    if gap.before is None:
        if gap.stuck:
            return f"is stuck {gap.stuck}"
        return "has nothing left to do" if scene.report.error is None or has_ended(scene) else "nothing more happened"
    if gap.awaited is not None:
        return f"awaits its {doing(gap.awaited)}, which runs from t={time_text(gap.awaited.start)}"
    cause = waited_for(gap, scene)
    if cause is None:
        return "the referee did not get this far"
    what = " to send" if cause.op.name == "pass_to" else f", the last to join this {doing(cause)}"
    before = scene.previous(cause)
    after = f", after its {doing(before)}" if before is not None else ""
    return f"waits for rank {cause.rank}{what}{after}"


def has_ended(scene: Scene) -> bool:
    """True if the run ended in a deadlock in which a rank that is not stuck has returned."""
    return isinstance(scene.report.error, DeadlockError)


def short_reason(gap: Gap, scene: Scene) -> str:
    """The reason for a gap, short enough to fit into it."""
    if gap.before is None:
        if gap.stuck:
            return f"stuck {gap.stuck}"
        return "done" if scene.report.error is None or has_ended(scene) else "nothing more"
    if gap.awaited is not None:
        return f"awaits {glyph_of(gap.awaited.op.name).name}"
    cause = waited_for(gap, scene)
    return f"waits for rank {cause.rank}" if cause is not None else "idle"


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
    lanes = [describe_row(row, scene) for row in scene.rows.every[:MAX_ROWS]]
    more = sum(len(row.ranks) for row in scene.rows.every[MAX_ROWS:])
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
        waits = f"; idle from t={time_text(gap.start)} to {time_text(gap.end)}, {short_reason(gap, scene)}"
    return f"{row.first.capitalize()}: {work}; {busy}{holds}{sends}{waits}."
