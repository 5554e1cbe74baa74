"""The targets of a schedule puzzle: as data, beside the figures of a run, and in words."""

from collections.abc import Iterator, Mapping

from lib import Goal
from puzzles.catalog.schedule.size_text import size_text
from puzzles.tracks.outcomes import Measure


def targets(goal: Goal) -> dict[str, float]:
    """The targets by name, as the puzzle states them."""
    given = {name: getattr(goal, name) for name in ("time", "memory", "host", "traffic", "drift")}
    return {name: value for name, value in given.items() if value is not None}


def limits_json(goal: Goal) -> dict[str, dict[str, float]]:
    """By the name of a figure: what it has to be `below`, or may be `at_most`."""
    limits = {
        **{"timesteps": goal.time_limit, "peak_memory": goal.memory_limit},
        **{"traffic": goal.traffic_limit, "host_memory": goal.host_limit},
    }
    found: dict[str, dict[str, float]] = {name: {"below": limit} for name, limit in limits.items() if limit is not None}
    return found | ({} if goal.drift is None else {"drift": {"at_most": goal.drift}})


def measures(goal: Goal, figures: Mapping[str, float]) -> Iterator[Measure]:
    """The figures beside their targets. Where the steady peak decides the pass, it is shown in place of the peak."""
    for_star = goal.decides == "star"
    memory, lasting = figures.get("peak_memory"), figures.get("lasting_peak")
    counts_steady = goal.steady and lasting is not None
    limit, shown = goal.memory_limit, goal.memory_text
    in_steady = Measure.below_limit("elements in a second step", lasting, limit, shown, "peak_memory")
    time, unit = figures.get("timesteps"), goal.costs.time_words
    yield Measure.below_limit(unit, time, goal.time_limit, goal.time_text, "timesteps")
    if counts_steady and not for_star:
        yield in_steady
    else:
        yield Measure.below_limit("elements", memory, limit, shown, "peak_memory")
    if goal.traffic_limit is not None:
        traffic = figures.get("traffic")
        found = Measure.below_limit("elements sent", traffic, goal.traffic_limit, goal.traffic_text, "traffic")
        yield found._replace(for_star=for_star)
    if goal.host_limit is not None:
        host = figures.get("host_memory")
        yield Measure.below_limit("elements on the host", host, goal.host_limit, goal.host_text, "host_memory")
    if goal.drift is not None:
        yield Measure.at_most("updates between two averages", figures.get("drift"), goal.drift, "drift")
    if counts_steady and for_star:
        yield in_steady._replace(figure="lasting_peak", for_star=True)


def limits(goal: Goal) -> str:
    """Size and targets in a line: '4 layers, 4 batches, 4 ranks; targets: < 13 timesteps, < 2.4M elements, < 1.6M
    sent'."""
    words = [f"{goal.time_text} {goal.costs.time_words}", f"{goal.memory_text} elements"]
    words += [f"{goal.host_text} on the host"] if goal.host_text else []
    if goal.traffic_text:
        words.append(f"{goal.traffic_text} sent" + (" for the third star" if goal.decides == "star" else ""))
    words += [] if goal.drift is None else [f"at most {goal.drift} updates between two averages"]
    return f"{size_text(goal.size)}; targets: {', '.join(words)}"
