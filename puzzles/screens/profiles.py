"""A profiled run as text: what was read, the schedule's name, why there is a bubble, findings, a bound, the next
command."""

import re
from collections.abc import Iterator, Sequence

from lib.ledger.algebra import counted
from lib.profiles import Shares, Study
from lib.profiles.gathered import numbers_text
from lib.profiles.reading import RankProfile
from puzzles.catalog.puzzle import with_papers

MOST_ROWS = 12
"""Rows of a table; of more stages or ranks only the first are shown."""


def text_of(found: Study | Shares, paths: str = "traces/") -> str:
    """The report; `paths` are the files as a command names them."""
    lines = _of_shares(found) if isinstance(found, Shares) else _of_pipeline(found, paths)
    return "\n".join(lines)


def _of_pipeline(found: Study, paths: str) -> Iterator[str]:
    step, chosen = found.chosen.step, found.chosen
    yield f"{_read(found.gathered.profiles)}; {_steps(found)}; {_clock(found)}."
    yield from found.gathered.notes
    size = f"{counted(step.table.stages, 'stage')} on {counted(step.table.ranks, 'rank')}"
    yield f"Schedule: {with_papers(found.name)}; {size}, {counted(step.table.batches, 'microbatch')}."
    if len(found.steps) > 1:
        for one in found.steps[:MOST_ROWS]:
            mark = "  (in full below)" if one is chosen else ""
            yield f"  step {one.step.number}: {one.step.length:.1f} ms, {one.bubble:.1%} bubble{mark}"
    outside = f", and {step.outside:.1f} ms outside the pipeline" if step.outside else ""
    yield f"Step {step.number} takes {step.length:.1f} ms{outside}. {ladder_text(found)}"
    if not found.is_trusted:
        yield (
            "More than 3% is not explained, so do not trust this account: cells are missing or wrongly named, or the "
            "ranks share a busy machine."
        )
    gaps = sum(one.gaps for one in chosen.ranks) / len(chosen.ranks) / step.length
    if gaps > 0.01:
        yield f"Within cells, no kernel runs for {gaps:.1%} of the step: launches are too slow there."
    yield ""
    yield from _stage_table(found)
    yield ""
    yield from findings_text(found)
    yield from prospect_text(found)
    target = (
        "-o run.csv writes the better order for PyTorch" if found.prospect.better else "-o run.json writes all of it"
    )
    yield f"Next: puzzles profile {paths} -o run.html shows each cell; {target}."


def _read(profiles: Sequence[RankProfile]) -> str:
    read = counted(len(profiles), profiles[0].kind)
    return f"Read {read}, of rank {numbers_text([one.rank for one in profiles])}"


def _steps(found: Study) -> str:
    numbers = {one.step.number for one in found.steps}
    pipelines = len({one.ranks for one in found.gathered.steps})
    more = (
        f", {pipelines} replicas (the slowest is shown: rank {numbers_text(found.chosen.step.ranks)})"
        if pipelines > 1
        else ""
    )
    return f"step{'s' if len(numbers) > 1 else ''} {numbers_text(numbers)}{more}"


def _clock(found: Study) -> str:
    clocks = found.chosen.step.clocks
    if clocks.are_kept:
        return "one clock"
    return (
        f"clocks moved by up to {max(map(abs, clocks.offsets)):.1f} ms so that nothing is used before it is made; "
        f"waiting and messages below {clocks.doubt:.1f} ms are unknown"
    )


def ladder_text(found: Study) -> str:
    """'27.7% of the step is bubble: 15.8 order, 10.5 uneven stages, 0.7 host.', without what is less than 0.05%."""
    length = found.chosen.step.length
    rungs = sorted((one for one in found.ladder if abs(one.ms) >= 0.0005 * length), key=lambda one: -one.ms)
    parts = ", ".join(f"{100 * one.ms / length:.1f} {one.cause}" for one in rungs)
    return f"{found.chosen.bubble:.1%} of the step is bubble: {parts}."


def _stage_table(found: Study) -> Iterator[str]:
    ops = [op for op in "FBIW" if any(op in row.times for row in found.stages)]
    longest = max(time.median for row in found.stages for time in row.times.values())
    unit, factor = ("ms", 1) if longest >= 1 else ("µs", 1000)
    heads = [f"{op} {unit} (10-90%)" for op in ops]
    rows = [["stage", "rank", *heads, "held"]]
    for row in found.stages[:MOST_ROWS]:
        times = [row.times.get(op) for op in ops]
        cells = [
            "-" if time is None else "{:.1f} ({:.1f}-{:.1f})".format(*(factor * ms for ms in time)) for time in times
        ]
        rows.append([str(row.stage), str(row.rank), *cells, str(row.held)])
    yield from _table(rows, len(found.stages), "more stage")


def _table(rows: Sequence[Sequence[str]], number: int, what: str) -> Iterator[str]:
    """The rows, of which there is a `number` with those left out."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        yield "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths))
    if number > MOST_ROWS:
        yield f"and {counted(number - MOST_ROWS, what)}"


def findings_text(found: Study) -> Iterator[str]:
    """The findings, and for whom ranks wait."""
    for number, one in enumerate(found.findings, 1):
        yield f"{number}. {one.text} At {one.at:.1f} ms: {one.cell} on rank {one.rank}; it costs {one.ms:.1f} ms."
    if not found.findings:
        yield "No rank is slow, no cell is slow, and no host is late."
    waited = found.chosen.waited_for
    if waited:
        place, ms = max(waited.items(), key=lambda item: item[1])
        rank = found.chosen.step.ranks[place]
        yield f"Ranks wait longest for rank {rank}: {ms:.1f} ms in total, without the warm-up."


def prospect_text(found: Study) -> Iterator[str]:
    """The bound, and the better order or that none was found."""
    bound, better = found.prospect.bound, found.prospect.better
    if bound is not None:
        kind = "" if bound.has_halves else " of full backwards"
        reason = re.sub(r"(?<=for |ins )\d+(\.\d+)?", lambda time: f"{float(time[0]):.1f} ms", bound.reason)
        yield (
            f"Bound: with the median times and this memory, no order{kind} takes less than {bound.ms:.1f} ms "
            f"({reason}). With these times, this order takes {bound.replay:.1f} ms, and "
            f"{bound.even:.1f} ms with even stages; measured: {found.chosen.step.length:.1f} ms."
        )
    if found.prospect.refusal:
        yield found.prospect.refusal
    if better is None:
        if bound is not None and not found.prospect.refusal:
            below = 1 - bound.ms / bound.replay
            yield f"No better order was found; the bound is {below:.1%} below this order."
        return
    assert found.better_name is not None
    low, high = better.span
    spread = f" ({low:.0f} to {high:.0f} ms with 40 to 60% of a backward in its input half)" if better.assumed else ""
    yield (
        f"Better order: {with_papers(found.better_name)}. With each stage's own times it takes {better.ms:.1f} ms"
        f"{spread}, {better.shorter:.1%} less than this order, replayed in the same way. A rank holds at most "
        f"{better.held:g} {'microbatch' if better.held == 1 else 'microbatches'}."
    )
    if better.assumed:
        yield (
            "Both halves of backward are assumed to take equal time; measure them with PyTorch's "
            "_PipelineScheduleRuntime."
        )


def _of_shares(found: Shares) -> Iterator[str]:
    is_single = any(one.idle for one in found.ranks)
    calls = "" if is_single else f"; {counted(found.calls, 'collective')}, and no cells of a pipeline"
    yield f"{_read(found.profiles)}; step {found.step}{calls}."
    yield from found.notes
    heads = ["computing", "idle"] if is_single else ["computing", "waiting for others", "communication", "gaps"]
    rows = [["rank", "step ms", *heads]]
    for one in found.ranks[:MOST_ROWS]:
        parts = [one.computing, one.idle] if is_single else [
            one.computing, sum(one.waiting.values()), one.communication, one.host
        ]  # fmt: skip
        rows.append([str(one.rank), f"{one.length:.1f}", *(f"{ms:.1f} ({ms / (one.length or 1):.0%})" for ms in parts)])
    yield ""
    yield from _table(rows, len(found.ranks), "more rank")
    yield ""
    yield from _phase_text(found)
    waited = found.waited_for
    if waited:
        rank, ms = max(waited.items(), key=lambda item: item[1])
        every = sum(waited.values())
        yield f"Rank {rank} is waited for: {ms:.1f} of the {every:.1f} ms that ranks wait before collectives."


def _phase_text(found: Shares) -> Iterator[str]:
    """What computing consists of, on average over the ranks, and which collectives it does not hide."""
    names, ranks = ("forward", "backward", "optimizer"), found.ranks
    phases = {name: sum(one.phases.get(name, 0.0) for one in ranks) / len(ranks) for name in names}
    if every := sum(phases.values()):
        parts = ", ".join(f"{phase} {ms:.1f} ms ({ms / every:.0%})" for phase, ms in phases.items() if ms)
        yield f"Computing: {parts}."
    for name, one in list(found.collectives.items())[:MOST_ROWS]:
        yield f"{name}: {one.ms:.1f} ms ({one.calls:g} x); {one.exposed:.1f} ms are exposed, nothing computes then."
