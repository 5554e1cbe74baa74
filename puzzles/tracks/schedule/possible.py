"""Says what a correct schedule is, and how far it is from what is possible."""

from collections.abc import Iterator, Mapping, Sequence

from lib import Record, Trace
from lib.bounds import Bound, memory_bound, pipeline_time_bound, time_bound, traffic_bound
from lib.judging.family import PIPELINES
from lib.recognition import Recognition
from puzzles.tracks.outcomes import amount, number_text

NO_BOUND = Bound(0, "")


def above_possible(
    trace: Trace,
    found: Recognition,
    figures: Mapping[str, float],
    records: Sequence[Record] = (),
    time_limit: float = 0,
) -> Iterator[str]:
    """Sentences that compare a schedule's figures with the bounds of its size, and a pipeline's with the bound of its
    stages, unless one of the `records` is a faster pipeline: then that has other stages. What has to be sent is said of
    schedules that take less than `time_limit`."""
    size, setting = trace.size, trace.setting
    least, floor = time_bound(size, setting), memory_bound(size, setting)
    own = pipeline_time_bound(size, setting, found.stages) if found.stages else NO_BOUND
    beaten = any(record.timesteps < own.least for record in records if record.family in ("", *PIPELINES))
    bounds = [(own, "a pipeline with these stages")] if own.least > least.least and not beaten else []
    bounds += [(least, "any schedule")] if least.least else []
    if bounds:
        timesteps = figures["timesteps"]
        yield f"Time: {'; '.join(_above(timesteps, bound, setting.costs.time_unit, where) for bound, where in bounds)}."
    if beaten:
        yield "The fastest pipeline known at this size has other stages: with these, no schedule is as fast."
    if floor.least:
        yield f"Memory: {_above(figures['peak_memory'], floor, 'elements', 'any schedule')}."
    sent = traffic_bound(size, setting, time_limit)
    if sent.least and "traffic" in figures and time_limit:
        fast = f"any schedule below {setting.costs.took(time_limit)}"
        yield f"Traffic: {_above(figures['traffic'], sent, 'elements sent by a rank', fast)}."


def _above(figure: float, bound: Bound, unit: str, where: str) -> str:
    """'any schedule needs at least 30.4 steps (...), and this one takes 2.9 more'."""
    more = round(figure - bound.least, 3)
    this = f"{number_text(more)} more" if more else "no more"
    least = amount(bound.least, unit)
    return f"{where} needs at least {least} ({bound.reason}), and this one takes {this}"
