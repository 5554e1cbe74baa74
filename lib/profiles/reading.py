"""Reads the files of profiled runs: when a rank computed which cells, by step, and its collectives.

On processors, a cell lasts from the first to the last operation within its annotation that is not communication: an
annotation begins before its receive has been waited for. On GPUs, it lasts from the first to the last kernel that was
launched within the annotation, by any thread, since autograd has its own threads.

Where no cell is named, a kernel belongs to the step, and to the phase of it, in which it was launched: forward,
backward or the optimizer, by the ranges that PyTorch records itself.

An event dump is `config.json` with pp_size, vp_size and num_mbs, and `pp_rank_N.json` with lists of starts and ends by
step, in ms. Megatron-LM writes them in AMD's Primus (--dump_pp_data true); any framework can.
"""

from __future__ import annotations

import json
import re
import tomllib
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

from lib.errors import RuleError, Sentences
from lib.ledger.algebra import union
from lib.pipelines import Cell
from lib.pipelines.timetable import OPERATIONS, Slot
from lib.pipelines.torch_csv import slot_of

# --- Files: their bytes as JSON, unpacked within a limit ---

MOST_TEXT = 60
"""Characters of a name from a file that a message repeats."""


class Span(NamedTuple):
    """When a rank computed the cells of a slot, in ms. The program `posted` it, perhaps ahead of a GPU; `busy` is the
    time in which kernels ran. A negative stage -1 - c is the rank's chunk c; negative microbatches are counted in
    order."""

    cells: Slot
    posted: float
    start: float
    end: float
    busy: float

    @property
    def length(self) -> float:
        return self.end - self.start

    @property
    def kind(self) -> tuple[tuple[int, str], ...]:
        """The stage and the operation of each cell."""
        return tuple((cell.stage, cell.op) for cell in self.cells)

    def moved(self, by: float) -> Span:
        return self._replace(posted=self.posted + by, start=self.start + by, end=self.end + by)


class JoinedCall(NamedTuple):
    """A collective on a rank, in ms: which, the name of its group if the file has it, when the rank joined and when it
    ended."""

    name: str
    group: str
    start: float
    end: float


@dataclass(frozen=True)
class RankStep:
    """One step of a rank, in ms of its own clock."""

    start: float
    end: float
    spans: tuple[Span, ...] = ()
    calls: tuple[JoinedCall, ...] = ()
    computing: tuple[tuple[float, float], ...] = ()
    """When operations other than communication ran, ascending and disjoint; only where no cells are named."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """By phase (forward, backward, optimizer) the ms of `computing` in it."""

    @property
    def length(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class RankProfile:
    """One file of a rank. `base` is the zero of its times, in ns since 1970."""

    file: str
    rank: int
    world: int | None
    steps: Mapping[int, RankStep]
    kind: str
    host: str = ""
    base: int = 0
    groups: Sequence[tuple[int, ...]] = ()
    """Process groups of pipelines, if the file names them."""
    notes: tuple[str, ...] = ()


def clipped(text: str) -> str:
    """A name from a file in one short line."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_TEXT else f"{line[: MOST_TEXT - 3]}..."


def without(
    intervals: Sequence[tuple[float, float]], holes: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Disjoint ascending intervals minus other ones."""
    rest: list[tuple[float, float]] = []
    at = 0
    for start, end in intervals:
        while at < len(holes) and holes[at][1] <= start:
            at += 1
        place = at
        while place < len(holes) and holes[place][0] < end:
            if holes[place][0] > start:
                rest.append((start, holes[place][0]))
            start = max(start, holes[place][1])
            place += 1
        if start < end:
            rest.append((start, end))
    return rest


LIMIT = 500_000_000
"""Bytes of an unpacked file. A million events are 228 MB."""

MOST_VALUES = 40_000_000
"""Numbers, texts, lists and objects in a file: each takes Python about 50 bytes. A million events have 15 million."""

GIVE = "give the folder with what torch.profiler wrote, a .json or .json.gz file for each rank"
"""The advice when files cannot be read."""

PIECE = 1 << 20
GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Source:
    """A file by its name, and a way to open it: a path here, or bytes in the browser."""

    name: str
    open: Callable[[], BinaryIO]

    @classmethod
    def of(cls, path: Path) -> Source:
        return cls(path.name, lambda: path.open("rb"))


def sources_of(paths: list[Path]) -> list[Source]:
    """The files, and the JSON files of the folders, in the order of their names.

    Raises:
        RuleError: a folder has none.
    """
    sources: list[Source] = []
    for path in paths:
        if not path.is_dir():
            sources.append(Source.of(path))
            continue
        inside = [file for file in path.iterdir() if file.is_file() and file.name.endswith((".json", ".json.gz"))]
        if not inside:
            raise RuleError(SAYS("no JSON file", folder=path.name))
        sources += map(Source.of, sorted(inside, key=_by_number))
    return sources


def _by_number(path: Path) -> list[tuple[bool, int, str]]:
    """rank10 comes after rank9."""
    return [
        (not word.isdigit(), int(word[:9]) if word.isdigit() else 0, word) for word in re.split(r"(\d+)", path.name)
    ]


def json_of(source: Source, limit: int = LIMIT) -> Any:
    """The content of a file."""
    try:
        with source.open() as stream:
            text = _unpacked(stream, source.name, limit).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RuleError(f"{source.name} is neither text nor JSON packed with gzip; {GIVE}") from None
    except OSError as why:
        raise RuleError(f"{source.name} cannot be read: {(why.strerror or str(why)).lower()}") from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as why:
        if why.pos >= len(why.doc.rstrip()) or why.msg.startswith("Unterminated"):
            raise RuleError(SAYS("ends within trace", file=source.name, at=len(why.doc))) from None
        raise RuleError(f"{source.name} is not JSON: {why.msg.lower()} at character {why.pos}; {GIVE}") from None
    except (RecursionError, ValueError, MemoryError) as why:
        raise RuleError(f"{source.name} cannot be read as JSON: {clipped(str(why)) or type(why).__name__}") from None


def _unpacked(stream: BinaryIO, name: str, limit: int) -> bytearray:
    """The bytes of a file, packed or not, within the limits on what reading them may take."""
    head = stream.read(PIECE)
    unpacker = zlib.decompressobj(31) if head.startswith(GZIP) else None
    unpacked, values = bytearray(), 0
    while head:
        try:
            part = unpacker.decompress(head, PIECE) if unpacker else head
        except zlib.error:
            raise RuleError(f"{name} is damaged: gzip cannot unpack it") from None
        unpacked += part
        values += part.count(b",") + part.count(b"[") + part.count(b"{")
        if len(unpacked) > limit or values > MOST_VALUES:
            too_many = f"{limit / 1e9:g} GB unpacked" if len(unpacked) > limit else f"{MOST_VALUES:,} values"
            raise RuleError(SAYS("too much", file=name, too_many=too_many))
        head = unpacker.unconsumed_tail if unpacker and unpacker.unconsumed_tail else stream.read(PIECE)
        if unpacker and unpacker.eof:
            break
    if unpacker and not unpacker.eof:
        raise RuleError(SAYS("cut off", file=name))
    return unpacked


def whole_number(value: Any) -> int | None:
    """A plausible whole number from 0 on; None for anything else."""
    return value if type(value) is int and 0 <= value < 10**9 else None


def is_time(value: Any) -> bool:
    """True for a plausible finite time."""
    return type(value) in (int, float) and -1e18 < value < 1e18


def mapping(value: Any) -> Mapping[str, Any]:
    """A JSON object; empty for anything else."""
    return value if isinstance(value, dict) else {}


# --- Names: the cells of an annotation of PyTorch's pipelines, and of others by a TOML file ---

GROUPS = ("stage", "batch", "chunk", "op")

GPIPE = re.compile(r"(Forward|Backward) (\d{1,6})")


@dataclass(frozen=True)
class NameRule:
    """A pattern for full names, and the operation that they mean unless the name states one."""

    match: re.Pattern[str]
    op: str

    def slot(self, name: str) -> Slot | None:
        named = self.match.fullmatch(name)
        if named is None:
            return None
        said = named.groupdict()
        op = said.get("op") or self.op
        if op not in OPERATIONS:
            raise RuleError(SAYS("no such operation", name=clipped(name), op=clipped(op)))
        stage = _number(name, said.get("stage"), -1 - _number(name, said.get("chunk"), 0))
        return (Cell(stage, op, _number(name, said.get("batch"), -1)),)


def _number(name: str, text: str | None, otherwise: int) -> int:
    if text is None:
        return otherwise
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise RuleError(SAYS("no number", name=clipped(name), got=clipped(text)))
    return int(text)


def slot_named(name: str, rules: Sequence[NameRule] = ()) -> Slot | None:
    """The cells that an annotation names; None for any other."""
    for rule in rules:
        if (slot := rule.slot(name)) is not None:
            return slot
    if name.startswith("PP:"):
        return slot_of(name.removeprefix("PP:"))
    if cell := GPIPE.fullmatch(name):
        return (Cell(-1, cell[1][0], int(cell[2])),)
    return None


def read_rules(text: str, file: str) -> list[NameRule]:
    """The rules of a TOML file: `[[cell]]` with `match`, a regular expression with the groups stage, batch, chunk and
    op, and `op`.

    Raises:
        RuleError: naming the file and what is wrong.
    """
    try:
        cells = tomllib.loads(text).get("cell")
    except (tomllib.TOMLDecodeError, RecursionError) as why:
        raise RuleError(f"{file} is not TOML: {clipped(str(why))}") from None
    if not isinstance(cells, list) or not cells or not all(isinstance(cell, dict) for cell in cells):
        raise RuleError(f"{file} has no [[cell]]; each has match = '...' and op = \"F\"")
    rules = []
    for number, cell in enumerate(cells, 1):
        match, op = cell.get("match"), cell.get("op", "")
        if not isinstance(match, str):
            raise RuleError(f"{file}, cell {number} has no match = '...', a regular expression for full names")
        try:
            pattern = re.compile(match)
        except (re.error, RecursionError, OverflowError) as why:
            raise RuleError(f"{file}, cell {number}: '{clipped(match)}' is not a regular expression: {why}") from None
        if unknown := [group for group in pattern.groupindex if group not in GROUPS]:
            raise RuleError(f"{file}, cell {number} has the group {unknown[0]}; groups are {', '.join(GROUPS)}")
        if op not in OPERATIONS and "op" not in pattern.groupindex:
            raise RuleError(f"{file}, cell {number} has no operation: op is F, B, I or W, or a group of the pattern")
        rules.append(NameRule(pattern, op))
    return rules


FRAMEWORKS = ("torch", "megatron")
"""Frameworks for which `hooks` has a file."""


def hooks(framework: str) -> str:
    """A file of Python to import if a framework does not name its cells: it names them for the profiler."""
    return (Path(__file__).parent / "hooks" / f"{framework}.txt").read_text(encoding="utf-8")


# --- Event dumps ---

OPERATION = {"fwd": "F", "bwd": "B", "wgrad": "W"}
NAME = re.compile(r"pp_rank_(\d{1,6})\.json(?:\.gz)?")
MOST_CELLS = 1_000_000


def is_dump_config(data: Any) -> bool:
    return "pp_size" in mapping(data)


def read_dump(data: Any, file: str, config: Mapping[str, Any]) -> RankProfile:
    """What a dump says about its rank."""
    named = NAME.fullmatch(file)
    if named is None:
        raise RuleError(f"{file} is not an event dump: next to config.json they are called pp_rank_0.json")
    ranks = whole_number(config.get("pp_size")) or 0
    chunks = whole_number(config.get("vp_size") or 1) or 0
    if not 0 < ranks <= 10_000 or not 0 < chunks <= 1000:
        raise RuleError("config.json has a pp_size or a vp_size that is not a number of ranks or chunks")
    steps: dict[int, RankStep] = {}
    for key, step in mapping(data).items():
        if not key.isdecimal() or len(key) > 9:
            raise RuleError(f"{file} has the step '{clipped(key)}', which is not a number")
        spans = sorted(_spans(mapping(step), f"{file}, step {key}", ranks, chunks), key=lambda span: span.start)
        if spans:
            total = mapping(step).get("total")
            end = max(span.end for span in spans)
            steps[int(key)] = RankStep(
                0.0, max(end, _dumped_time(total, file) if total is not None else end), tuple(spans)
            )
    return RankProfile(file, int(named[1]), ranks, steps, "event dump")


def _spans(step: Mapping[str, Any], where: str, ranks: int, chunks: int) -> Iterator[Span]:
    halves = bool(step.get("wgrad_start"))
    for word, letter in OPERATION.items():
        starts, ends = (
            _dumped_times(step.get(f"{word}_{side}", []), f"{where}, {word}_{side}") for side in ("start", "end")
        )
        if len(starts) != len(ends):
            raise RuleError(f"{where} has {len(starts)} {word}_start and {len(ends)} {word}_end; it needs as many")
        batches, places = (step.get(f"{word}_{name}") for name in ("minibatch", "chunk"))
        op = "I" if letter == "B" and halves else letter
        for n, (start, end) in enumerate(zip(starts, ends)):
            if end < start:
                raise RuleError(f"{where}: {word} {n} ends before it starts")
            turn = n // (ranks * chunks) * ranks + n % ranks
            chunk = n % (ranks * chunks) // ranks
            batch = _entry(batches, n, turn, where)
            place = _entry(places, n, chunk if letter == "F" else chunks - 1 - chunk, where)
            yield Span((Cell(-1 - place, op, batch),), start, start, end, end - start)


def _entry(given: Any, place: int, otherwise: int, where: str) -> int:
    if given is None:
        return otherwise
    number = whole_number(given[place]) if isinstance(given, list) and place < len(given) else None
    if number is None or number >= MOST_CELLS:
        raise RuleError(f"{where} has no microbatch or chunk for entry {place}")
    return number


def _dumped_times(value: Any, where: str) -> list[float]:
    if not isinstance(value, list) or len(value) > MOST_CELLS:
        raise RuleError(f"{where} is not a list of times in ms")
    return [_dumped_time(time, where) for time in value]


def _dumped_time(value: Any, where: str) -> float:
    if not is_time(value):
        raise RuleError(f"{where} has {clipped(repr(value))}, which is not a time in ms")
    return float(value)


# --- Traces of torch.profiler ---

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
    for entry, value in (("ts", start), ("dur", length)):
        if not is_time(value):
            raise RuleError(f"{where}, '{clipped(name)}', has a {entry} that is not a time: {clipped(repr(value))}")
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


SAYS = Sentences(
    {
        "no such operation": "'{name}' has the operation '{op}'; it is one of F, B, I and W",
        "no number": "'{name}' has '{got}' where the pattern has a number; match \\d+ there",
        "no JSON file": "{folder} has no .json or .json.gz file; torch.profiler writes one for each rank",
        "ends within trace": "{file} ends at character {at}, within the trace; the profiler was stopped while it wrote",
        "too much": "{file} has more than {too_many}; profile fewer steps, or without stacks and shapes",
        "cut off": "{file} is cut off; the profiler was stopped while it wrote",
    }
)
