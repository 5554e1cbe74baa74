"""Reads a trace that torch.profiler exported: the steps of a rank, its cells, and its collectives.

On processors, a cell lasts from the first to the last operation within its annotation that is not communication: an
annotation begins before its receive has been waited for. On GPUs, it lasts from the first to the last kernel that was
launched within the annotation, by any thread, since autograd has its own threads.

Where no cell is named, a kernel belongs to the step, and to the phase of it, in which it was launched: forward,
backward or the optimizer, by the ranges that PyTorch records itself.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from lib.errors import RuleError
from lib.schedules import Cell
from lib.schedules.cells import Slot
from lib.values.algebra import union

from .names import NameRule, slot_named
from .sources import JoinedCall, RankProfile, RankStep, Span, clipped, is_time, mapping, whole_number, without

LAUNCHES = ("cuda_runtime", "cuda_driver", "hip_runtime")
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
WANTED = frozenset(("user_annotation", "cpu_op", *LAUNCHES, *ON_GPU))

STEP = re.compile(r"ProfilerStep#(\d{1,9})")
COMMUNICATION = re.compile(
    r"_?c10d(_functional)?::.*|record_param_comms|gloo:.*|nccl:.*"
    r"|FSDP::(all_gather|post_backward_reduce|post_backward_rs_wait) .*"
)
COLLECTIVE = re.compile("(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|send_?recv|send|recv)")
BACKWARD = "autograd::engine::evaluate_function"
OF_BACKWARD = re.compile(r"FSDP::(pre_backward|post_backward|root_post_backward|backward_prefetch).*")
OPTIMIZER = re.compile(r"Optimizer\.(step|zero_grad)#.*")

SHORT = 0.1
"""Without annotations, computing shorter than this share of the median is not a cell."""


class TraceEvent(NamedTuple):
    """An event with a duration, in ms."""

    name: str
    thread: tuple[str, str]
    start: float
    end: float
    args: Mapping[str, Any]

    @property
    def process(self) -> str:
        return self.thread[0]


Events = Mapping[str, Sequence[TraceEvent]]
"""Events by category, in the order of their starts."""


class Annotated(NamedTuple):
    """Cells that an annotation names."""

    slot: Slot
    event: TraceEvent


def is_kineto(data: Any) -> bool:
    return isinstance(mapping(data).get("traceEvents"), list)


def read_kineto(data: Mapping[str, Any], file: str, rules: Sequence[NameRule] = ()) -> RankProfile:
    """What a trace says about its rank."""
    info = mapping(data.get("distributedInfo"))
    rank = whole_number(info.get("rank"))
    if rank is None:
        named = re.search(r"rank[^0-9]{0,2}(\d{1,6})", file, re.IGNORECASE)
        if named is None:
            raise RuleError(f"{file} does not say its rank; name it rank0.json, or profile after init_process_group")
        rank = int(named[1])
    events = _events(data["traceEvents"], file)
    kernels = _Kernels(events)
    steps: dict[int, RankStep] = {}
    notes: tuple[str, ...] = ()
    for number, start, end, within in _within_steps(events):
        spans = _cells(within, rules, kernels, file)
        if not spans and not kernels and (spans := _between_messages(within["cpu_op"], rank == 0)):
            notes = ("No cell is named; cells follow from the order of messages.",)
        steps[number] = RankStep(start, end, tuple(spans))
        if not spans or notes:
            steps[number] = _collective_step(steps[number], within, kernels)
    groups = [tuple(ranks) for ranks in _pipeline_groups(info) if rank in ranks]
    base = data.get("baseTimeNanoseconds")
    return RankProfile(
        file,
        rank,
        whole_number(info.get("world_size")),
        steps,
        "PyTorch GPU trace" if kernels else "PyTorch trace",
        clipped(host) if isinstance(host := data.get("host_name"), str) else "",
        base if type(base) is int and abs(base) < 1 << 63 else 0,
        groups,
        notes,
    )


def listed(value: Any) -> list[Any]:
    """A JSON list; empty for anything else."""
    return value if isinstance(value, list) else []


def _pipeline_groups(info: Mapping[str, Any]) -> Iterator[list[int]]:
    """The process groups that are called a pipeline."""
    for group in map(mapping, listed(info.get("pg_config"))):
        called, ranks = group.get("pg_desc"), listed(group.get("ranks"))
        is_pipeline = isinstance(called, str) and re.search(r"pp|pipe", called, re.IGNORECASE)
        if is_pipeline and len(ranks) > 1 and all(whole_number(rank) is not None for rank in ranks):
            yield ranks


def _events(raw: Sequence[Any], file: str) -> dict[str, list[TraceEvent]]:
    """The events that are used, by category, in the order of their starts."""
    by_category: dict[str, list[TraceEvent]] = {name: [] for name in WANTED}
    for number, event in enumerate(raw):
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        category = event.get("cat")
        if isinstance(category, str) and category in WANTED:
            by_category[category].append(_event(event, f"{file}, event {number}"))
    for events in by_category.values():
        events.sort(key=lambda event: (event.start, -event.end))
    return by_category


def _event(event: Mapping[str, Any], where: str) -> TraceEvent:
    name, args = event.get("name"), event.get("args", {})
    start: Any = event.get("ts")
    length: Any = event.get("dur", 0)
    if not isinstance(name, str):
        raise RuleError(f"{where} has a name that is not a string: {clipped(repr(name))}")
    for field, value in (("ts", start), ("dur", length)):
        if not is_time(value):
            raise RuleError(f"{where}, '{clipped(name)}', has a {field} that is not a time: {clipped(repr(value))}")
    if length < 0:
        raise RuleError(f"{where}, '{clipped(name)}', lasts less than no time: {length:g} µs")
    if not isinstance(args, dict):
        raise RuleError(f"{where}, '{clipped(name)}', has args that are not an object: {clipped(repr(args))}")
    thread = _identity(event.get("pid"), where), _identity(event.get("tid"), where)
    return TraceEvent(name, thread, start / 1e3, (start + length) / 1e3, args)


def _identity(value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str | None):
        raise RuleError(f"{where} has a process or thread that is neither a number nor text: {clipped(repr(value))}")
    return str(value)


def _steps(events: Events) -> list[tuple[int, float, float]]:
    """The steps that the profiler marked; without marks the file is step 0."""
    marked = [(event, STEP.fullmatch(event.name)) for event in events["user_annotation"]]
    marks = {int(step[1]): (event.start, event.end) for event, step in marked if step}
    if marks:
        return [(number, *marks[number]) for number in sorted(marks)]
    times = [time for some in events.values() for event in some for time in (event.start, event.end)]
    return [(0, min(times), max(times) + 1e-6)] if times else []


def _within_steps(events: Events) -> Iterator[tuple[int, float, float, Events]]:
    """Each step with the events that start in it, which are found by bisection: a file may have 100,000 steps. Where
    steps overlap, an event belongs to the later one, so that no event is read more than once."""
    starts = {name: [event.start for event in some] for name, some in events.items()}
    steps = _steps(events)
    following = {step[0]: after[1] for step, after in pairwise(sorted(steps, key=lambda step: step[1]))}
    for number, start, end in steps:
        until = min(end, following.get(number, end))
        within = {
            name: some[bisect_left(starts[name], start) : bisect_left(starts[name], until)]
            for name, some in events.items()
        }
        yield number, start, end, within


def _cells(events: Events, rules: Sequence[NameRule], kernels: _Kernels, file: str) -> list[Span]:
    """The cells of a step, in the order of their annotations."""
    named = [
        Annotated(slot, event)
        for event in events["user_annotation"]
        if (slot := slot_named(event.name, rules)) is not None
    ]
    if any(
        annotated.event.name.startswith("PP:") for annotated in named
    ):  # hooks name what a framework names less well
        named = [annotated for annotated in named if not re.match(r"Forward|Backward", annotated.event.name)]
    if kernels:
        return _on_gpu(named, events, kernels, file) if named else []
    threads: dict[tuple[str, str], list[TraceEvent]] = {}
    for event in events["cpu_op"]:
        if not COMMUNICATION.fullmatch(event.name):
            threads.setdefault(event.thread, []).append(event)
    starts = {thread: [event.start for event in some] for thread, some in threads.items()}
    places = [
        slice(bisect_left(begins, event.start), bisect_left(begins, event.end))
        for _, event in named
        for begins in [starts.get(event.thread, [])]
    ]
    _require_shallow(places, len(events["cpu_op"]), file)
    spans = []
    for (slot, event), place in zip(named, places):
        inside = threads.get(event.thread, [])[place]
        start = inside[0].start if inside else event.end  # a cell without work waits for its receive all the same
        end = max((op.end for op in inside), default=start)
        spans.append(Span(slot, event.start, start, end, end - start))
    return spans


MOST_NESTED = 20
"""Annotations of cells that may contain the same operation."""


def _require_shallow(places: Sequence[slice], operations: int, file: str) -> None:
    if sum(place.stop - place.start for place in places) > MOST_NESTED * max(operations, 1):
        raise RuleError(
            f"{file} has annotations of cells within each other, more than {MOST_NESTED} deep; annotate each cell alone"
        )


class _Kernels:
    """The kernels and copies of a trace that do not communicate, by their number, which their launch has too; and the
    kernels of collectives. It is false where no kernel ran."""

    def __init__(self, events: Events) -> None:
        self.any = bool(events["kernel"])
        self.by_number: dict[int, list[TraceEvent]] = {}
        self.collectives: dict[int, list[TraceEvent]] = {}
        communicating = {event.thread for event in events["kernel"] if _communicates(event)}
        for event in (event for category in ON_GPU for event in events[category]):
            number = whole_number(event.args.get("correlation"))
            if number is not None and event.thread not in communicating:
                self.by_number.setdefault(number, []).append(event)
            elif number is not None and _communicates(event):
                self.collectives.setdefault(number, []).append(event)

    def __bool__(self) -> bool:
        return self.any


def _communicates(event: TraceEvent) -> bool:
    return "nccl" in event.name.lower()


def _launches(events: Events) -> dict[int, TraceEvent]:
    """The launches of a step, by the number of what they launch."""
    launched: dict[tuple[str, int], TraceEvent] = {}
    for category in LAUNCHES:
        for event in events[category]:
            if (number := whole_number(event.args.get("correlation"))) is not None:
                launched.setdefault((event.process, number), event)
    return {number: event for (_, number), event in launched.items()}


def _on_gpu(named: Sequence[Annotated], events: Events, ran: _Kernels, file: str) -> list[Span]:
    """Cells by the kernels that were launched in them."""
    kernels = [
        (launch.start, launch.process, event)
        for number, launch in _launches(events).items()
        for event in ran.by_number.pop(number, ())  # a number is launched once
    ]
    kernels.sort(key=lambda kernel: kernel[0])
    launches = [start for start, _, _ in kernels]
    places = [slice(bisect_left(launches, event.start), bisect_right(launches, event.end)) for _, event in named]
    _require_shallow(places, len(kernels), file)
    spans: list[Span] = []
    for (slot, event), place in zip(named, places):
        times = [(kernel.start, kernel.end) for _, process, kernel in kernels[place] if process == event.process]
        start, end = (min(times)[0], max(end for _, end in times)) if times else (0.0, 0.0)
        spans.append(Span(slot, event.start, start, end, sum(end - start for start, end in union(times))))
    # A cell without work waits for its receive, as do the kernels after it: a stream keeps the order of the program.
    following = max((span.end for span in spans), default=0.0)
    for n in reversed(range(len(spans))):
        if not spans[n].length:
            spans[n] = spans[n]._replace(start=following, end=following)
        following = spans[n].start
    return spans


def _between_messages(ops: Sequence[TraceEvent], is_first: bool) -> list[Span]:
    """Runs of computing between messages, counted in order: for a rank with one stage, forward and backward in turn.
    The first rank then sends one message for each forward; if not, ranks have several stages, and cells cannot be told
    apart."""
    if not any(op.name in ("c10d::send", "c10d::recv_") for op in ops):
        return []
    runs: list[Span] = []
    kind, end = "", -1.0
    for op in (op for op in ops if op.thread == ops[0].thread):
        if op.start < end:
            continue  # it is part of another operation
        end = op.end
        if COMMUNICATION.fullmatch(op.name):
            kind = ""
            continue
        direction = "B" if op.name.startswith(BACKWARD) else "F"
        if direction == kind:
            runs[-1] = runs[-1]._replace(end=op.end, busy=op.end - runs[-1].start)
        else:
            runs.append(Span((Cell(-1, direction, -1),), op.start, op.start, op.end, op.end - op.start))
        kind = direction
    typical = sorted(run.length for run in runs)[len(runs) // 2] if runs else 0.0
    cells = [run for run in runs if run.length >= SHORT * typical]
    sends = sum(op.name == "c10d::send" for op in ops)
    return [] if is_first and sends != sum(run.cells[0].op == "F" for run in cells) else cells


class _Phases:
    """Which phase of a step a thread is in: the optimizer within its annotation, backward within autograd's functions
    and within FSDP's annotations of backward, else forward."""

    def __init__(self, events: Events) -> None:
        ranges: dict[tuple[str, tuple[str, str]], list[tuple[float, float]]] = {}
        for event in (*events["user_annotation"], *events["cpu_op"]):
            if OPTIMIZER.fullmatch(event.name):
                ranges.setdefault(("optimizer", event.thread), []).append((event.start, event.end))
            elif event.name.startswith(BACKWARD) or OF_BACKWARD.fullmatch(event.name):
                ranges.setdefault(("backward", event.thread), []).append((event.start, event.end))
        self.ranges = {key: union(some) for key, some in ranges.items()}
        self.starts = {key: [start for start, _ in some] for key, some in self.ranges.items()}

    def of(self, event: TraceEvent) -> str:
        for phase in ("optimizer", "backward"):
            key = phase, event.thread
            at = bisect_right(self.starts.get(key, ()), event.start) - 1
            if at >= 0 and event.start <= self.ranges[key][at][1]:
                return phase
        return "forward"


def _collective_step(step: RankStep, events: Events, kernels: _Kernels) -> RankStep:
    """A step whose cells are not named: its collectives, when other operations ran, and in which phase. On a GPU, a
    collective may overlap with computing; on a processor, what a collective does is not computing."""
    phases, by_phase = _Phases(events), dict[str, list[TraceEvent]]()
    works: list[TraceEvent] = []
    talking: list[TraceEvent] = []
    if kernels:
        for number, launch in _launches(events).items():  # a number is launched once
            by_phase.setdefault(phases.of(launch), []).extend(kernels.by_number.pop(number, ()))
            works += kernels.collectives.pop(number, ())
        ran = [event for some in (*by_phase.values(), works) for event in some]
        if ran:
            step = replace(step, start=min(event.start for event in ran), end=max(event.end for event in ran))
        else:  # nothing says what launched a kernel
            works = [event for event in events["kernel"] if _communicates(event)]
            by_phase = {"": [event for event in events["kernel"] if not _communicates(event)]}
    else:
        ops = events["cpu_op"]
        works = [event for event in events["user_annotation"] if event.name.startswith(("gloo:", "nccl:"))]
        talking = [op for op in (*ops, *events["user_annotation"]) if COMMUNICATION.fullmatch(op.name)]
        threads = {op.thread for op in ops if not COMMUNICATION.fullmatch(op.name)}
        talking = [op for op in talking if op.thread in threads]
        for op in ops:
            if not COMMUNICATION.fullmatch(op.name):
                by_phase.setdefault(phases.of(op), []).append(op)
    calls = []
    for work in works or talking:
        name = work.args.get("Collective name")
        collective = COLLECTIVE.search(name if isinstance(name, str) else work.name.lower())
        group = work.args.get("Process Group Ranks", work.args.get("Process Group Name", ""))
        if collective is not None:
            calls.append(JoinedCall(collective[1].replace("_", ""), clipped(str(group)), work.start, work.end))
    counted, lengths = _times(talking), dict[str, float]()
    for phase, some in by_phase.items():
        times = without(_times(some), counted)
        lengths[phase] = sum(end - start for start, end in times)
        counted = union([*counted, *times])
    computing = without(_times([event for some in by_phase.values() for event in some]), _times(talking))
    lengths.pop("", None)
    return replace(step, calls=tuple(calls), computing=tuple(computing), phases=MappingProxyType(lengths))


def _times(events: Sequence[TraceEvent]) -> list[tuple[float, float]]:
    return union([(event.start, event.end) for event in events])
