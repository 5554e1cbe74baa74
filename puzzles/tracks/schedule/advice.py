"""Advice on a schedule that is correct and misses a target: what its own run shows, and never more than that."""

from collections.abc import Iterator

from lib import Report, Trace
from lib.judging.peak_text import UNREAD, peak_rows
from lib.recognition import recomputed
from lib.values.algebra import named
from lib.values.kinds import Activation
from puzzles.catalog.schedule import SchedulePuzzle

from .lost_time import line_of, losses

MAX_CAUSES = 2
"""Sentences on what costs most."""


def advice(trace: Trace, report: Report, puzzle: SchedulePuzzle) -> str:
    """One or two sentences on how to meet the missed target."""
    if causes := traffic_sentences(report):
        return causes
    if not report.meets_memory:
        return _on_memory(trace, report, puzzle)
    if not report.meets_time:
        return _on_time(trace, report, puzzle)
    if not report.is_steady:
        return _on_loading(report, puzzle)
    if not report.meets_drift:
        return "Average the weights more often."
    return "Park fewer values, and delete a parked one when it has come back."


def _on_loading(report: Report, puzzle: SchedulePuzzle) -> str:
    """How to load less, or to keep what the next step needs."""
    if report.unrepeatable and puzzle.reload_advice:
        return puzzle.reload_advice
    if "allgather" in puzzle.calls and not puzzle.reload_advice:
        return "Load the part of a weight that the rank keeps, and get the rest from the others with `allgather`."
    if report.unrepeatable:
        return "Keep the updated weight to the end, or get it from the rank that updates it."
    return "Load each weight once, on the rank that keeps it, and keep the updated weight to the end."


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


def _on_memory(trace: Trace, report: Report, puzzle: SchedulePuzzle) -> str:
    """What nobody reads again at the peak; if all of it is still needed, what takes most."""
    peak, rows = report.peak, peak_rows(report.contents)
    where = f"The memory of rank {peak.rank} peaks at t={peak.time:g}"
    unread = [row for row in rows if row.unread]
    if unread:
        elements = sum(row.elements for row in unread)
        what = "; ".join(f"{row.what}{row.when.removeprefix(UNREAD)}" for row in unread[:MAX_CAUSES])
        return f"{where}, and {elements:,} elements of it are never read again: {what}. Delete them before that."
    first = rows[0]
    most = f"The largest part is {first.what} ({first.elements:,} elements, {first.when})"
    return f"{where}, and all of it is still needed. {most}. {_way_to_keep_less(trace, report, puzzle)}"


def _way_to_keep_less(trace: Trace, report: Report, puzzle: SchedulePuzzle) -> str:
    """What reduces a peak of which everything is still needed, by what most of it is."""
    goal = puzzle.goal
    items = [item for item in report.contents.items if isinstance(item.value, Activation)]
    batches = {value.batches for item in items if isinstance(value := item.value, Activation)}
    forwards = (op for op in trace.ranks[report.peak.rank] if op.name == "forward")
    again = trace.costs.steps(max((op.end - op.start for op in forwards), default=0))
    if 2 * sum(item.elements for item in items) < report.peak.memory:
        lost = losses(trace, report, goal) if not report.meets_time else []
        return lost[0].text if lost else "Do the work in another order, or keep less."
    before = (op for op in trace.ranks[report.peak.rank] if op.end <= report.contents.tick)
    left = batches.intersection(op.batches for op in before if op.name == "backward_input")
    if 2 * len(left) > len(batches):
        return f"{len(left)} weight halves are left to compute. Do some of them earlier: each frees an activation."
    if len(batches) > 1:
        several = f"These are activations of {len(batches)} microbatches"
        return f"{several}: go backward with one before you go forward with the next."
    if trace.setting.layer == "block" and "scatterreduce" in puzzle.calls:
        return "Keep only this rank's share of the tokens, and gather it again for backward."
    if goal.size.ranks == 1 and goal.meets_time(report.timesteps + again):
        return "Delete some of these activations, and compute them again in backward."
    return "Do the work in another order, or keep less."


def _on_time(trace: Trace, report: Report, puzzle: SchedulePuzzle) -> str:
    """Work that could be left out or could come later; else how much the ranks wait."""
    waits = [loss.text for loss in losses(trace, report, puzzle.goal)]
    found = [*_repeated(trace), *_unread_gradients(trace, puzzle), *waits]
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
    yield f"{line_of(ops[0])} computes {times} of {layers} again: keep an activation where there is room for it."


def _unread_gradients(trace: Trace, puzzle: SchedulePuzzle) -> Iterator[str]:
    """Weight gradients of full backwards that nobody reads, where backward has halves."""
    for ops in trace.ranks if "backward_input" in puzzle.calls else ():
        read = {number for op in ops if op.name not in ("store", "delete") for number in op.inputs}
        unread = [op for op in ops if op.name == "backward" and op.outputs[0] not in read]
        if unread:
            many = f"{len(unread)} weight gradients" if len(unread) > 1 else "a weight gradient"
            yield f"{line_of(unread[0])} computes {many} that nobody reads: use `backward_input` there."
            return
