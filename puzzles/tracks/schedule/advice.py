"""Advice on a schedule that is correct and misses a target: what its own run shows, and never more than that."""

from collections import Counter
from collections.abc import Iterator, Sequence

from lib import Op, Report, Trace
from lib.judging.peak_text import peak_rows
from lib.recognition import recomputed
from lib.values.algebra import named
from puzzles.catalog.schedule import SchedulePuzzle

MAX_CAUSES = 2
"""Sentences on what costs most."""


def advice(trace: Trace, report: Report, puzzle: SchedulePuzzle) -> str:
    """One or two sentences on how to meet the missed target."""
    if causes := traffic_sentences(report):
        return causes
    if not report.meets_memory:
        return _on_memory(report)
    if not report.meets_time:
        return _on_time(trace, report)
    if not report.is_steady:
        return puzzle.reload_advice
    if not report.meets_drift:
        return "Average the weights more often."
    return "Park fewer values, and delete a parked one when it has come back."


def traffic_sentences(report: Report) -> str:
    """Why a schedule sends too much, or takes too long because of what it sends: at most two sentences."""
    if report.causes:
        return " ".join(cause.text for cause in report.causes[:MAX_CAUSES])
    if report.meets_traffic:
        return ""
    first = report.traffic_by_call[0]
    where = f"Line {first.line}" if first.line else "One call"
    return (
        f"{where} sends most: `{first.operation}`, {first.number} times, {first.elements:,} elements "
        f"({first.elements / report.traffic:.0%})."
    )


def _on_memory(report: Report) -> str:
    """What nobody reads again at the peak; if all of it is still needed, what takes most."""
    peak, rows = report.peak, peak_rows(report.contents)
    where = f"Rank {peak.rank} holds most at t={peak.time:g}"
    unread = [row for row in rows if row.unread]
    if unread:
        elements = sum(row.elements for row in unread)
        what = "; ".join(f"{row.what}, {row.when}" for row in unread[:MAX_CAUSES])
        return f"{where}, and {elements:,} elements of that are not read again: {what}. Delete them before that."
    first = rows[0]
    return (
        f"{where}, and all of it is still needed. Most is {first.what} ({first.elements:,} elements, {first.when}). "
        "Do the work in another order, or keep less."
    )


def _on_time(trace: Trace, report: Report) -> str:
    """Work that could be left out or could come later; else how much the ranks wait."""
    found = [*_repeated(trace), *_late_sends(trace, report)]
    if found:
        return " ".join(found[:MAX_CAUSES])
    if report.bubble < 0.001:
        return "No rank ever waits, so a shorter run needs less work on the busiest rank."
    share = f"Ranks wait for {report.bubble:.0%} of the time"
    return f"{share}: look for gaps in the picture. What could a rank do meanwhile?"


def _repeated(trace: Trace) -> Iterator[str]:
    """Forwards that are computed again, on the rank that repeats most."""
    if trace.setting.steps > 1:
        return
    repeated = [[ops[i] for i in sorted(recomputed(ops))] for ops in trace.ranks]
    ops = max(repeated, key=len, default=[])
    if not ops:
        return
    layers = named("layer", sorted({op.layer for op in ops if op.layer is not None}))
    times = f"{len(ops)} forwards" if len(ops) > 1 else "a forward"
    yield f"{_line(ops[0])} computes {times} of {layers} again: keep an activation where there is room for it."


def _late_sends(trace: Trace, report: Report) -> Iterator[str]:
    """The send that another rank waits for most often, and that an update comes before."""
    late: Counter[tuple[int, int]] = Counter()
    example: dict[tuple[int, int], tuple[Op, Op, int]] = {}
    for waiting, waits in enumerate(report.waits):
        for sender, index in waits.values():
            ops = trace.ranks[sender]
            before = _update_before(ops, index) if ops[index].name == "pass_to" else None
            if before is not None:
                key = (before.line, ops[index].line)
                late[key] += 1
                example.setdefault(key, (before, ops[index], waiting))
    for key, _ in late.most_common(1):
        update, send, waiting = example[key]
        yield f"{_line(send)} sends after the update on {_line(update).lower()}, and rank {waiting} waits: send first."


def _update_before(ops: Sequence[Op], index: int) -> Op | None:
    """The last update between the operation that made what is sent and the send; None if there is none."""
    wanted = set(ops[index].inputs)
    op: Op
    for op in reversed(ops[:index]):
        if wanted & set(op.outputs):
            return None
        if op.name == "update":
            return op
    return None


def _line(op: Op) -> str:
    return f"Line {op.line}" if op.line else "A call"
