"""A schedule puzzle: the texts that every puzzle has, a goal, other sizes, the calls that a solution needs, its sketch.

It is read from its file. The sketch says only where things are, not in which order they are computed, because finding
the order is the puzzle. Puzzles of one size may share their records, so that one record is written down once. What the
reference scores at other sizes is stated in the file, and `puzzles check` measures it: a verdict does not run the
reference, which an installation may lack.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lib import Goal, Model, PuzzleError, Record, Setting, Size
from lib.ledger.family import FAMILIES
from lib.ledger.setting import FIELDS as SETTING_FIELDS
from lib.ledger.setting import setting_from_json
from lib.ledger.trace import FORMS
from puzzles.catalog.content import said_of
from puzzles.catalog.fields import NO_LIMIT, Fields
from puzzles.catalog.path import IDEAS, ideas_of
from puzzles.catalog.puzzle import Puzzle, rules_of, texts_of

from .setting_text import size_text

# --- The sketch ---


Share = tuple[int, int]
"""The index of a part of a layer, and the number of its parts."""

HOLDS = ("full", "shard", "stage", "nothing")
"""What each rank keeps: every layer, a shard of every layer, the layers of its stage, or what the player decides."""


@dataclass(frozen=True)
class PlaceSketch:
    shares: Mapping[tuple[int, int], Share]
    """By rank and layer, the part that the rank keeps."""
    batches: tuple[str, ...]
    """What each rank reads, in words."""
    talk: str
    """What the ranks tell each other, in words."""
    together: bool
    """True if all of them meet."""
    passes_on: frozenset[int]
    """The ranks that exchange activations with the next one."""
    works: Mapping[int, tuple[int, ...]]
    """The layers that a rank computes, where these are not all."""

    def part(self, rank: int, layer: int) -> Share | None:
        return self.shares.get((rank, layer))

    def computes(self, rank: int, layer: int) -> bool:
        return layer in self.works.get(rank, (layer,))


def read_sketch(fields: Fields, size: Size) -> PlaceSketch:
    """The sketch that a table describes."""
    layers, _, ranks = size
    each, texts = fields.text("each", ""), fields.texts("batches")
    passes = tuple(range(ranks - 1)) if fields.flag("chain") else _numbers(fields, "passes_on", ranks)
    sketch = PlaceSketch(
        _shares(fields, size),
        tuple(texts[rank] if rank < len(texts) else each.replace("{rank}", str(rank)) for rank in range(ranks)),
        fields.text("talk", ""),
        fields.flag("together"),
        frozenset(passes),
        {row.number("rank", least=0): _numbers(row, "layers", layers) for row in fields.tables("works")},
    )
    fields.done()
    return sketch


def _shares(fields: Fields, size: Size) -> dict[tuple[int, int], Share]:
    layers, _, ranks = size
    every = [(rank, layer) for rank in range(ranks) for layer in range(layers)]
    stage = layers // ranks if ranks <= layers else 1
    shards = fields.number("shards", ranks)
    match fields.one_of("holds", HOLDS, "nothing"):
        case "full":
            return dict.fromkeys(every, (0, 1))
        case "shard":
            return {place: (place[0] % shards, shards) for place in every}
        case "stage":
            return {(rank, layer): (0, 1) for rank, layer in every if layer // stage == rank}
    shares: dict[tuple[int, int], Share] = {}
    for row in fields.tables("parts"):
        rank, index, total = row.number("rank", least=0), row.number("part", 0, least=0), row.number("of", 1)
        shares |= {(rank, layer): (index, total) for layer in _numbers(row, "layers", layers)}
        row.done()
    return shares


def _numbers(fields: Fields, name: str, below: int) -> tuple[int, ...]:
    """A list of ranks or layers."""

    def is_right(given: object) -> bool:
        return isinstance(given, list) and all(type(number) is int and 0 <= number < below for number in given)

    return tuple(fields.take(name, f"a list of whole numbers from 0 to {below - 1}", is_right, []))


# --- The puzzle ---


EXTENDED = tuple("group tag step tier to outer on scale shares into past grad_keys total".split())
"""Parameters of calls that the classic games do not have. A puzzle names the ones that it needs."""

RELOAD_REASON = "a rank begins again with all that it has loaded"

TOLERANCE = 1.25
"""A schedule at another size is noted if its timesteps times its memory are more than so many times the reference's.
The product leaves it free to trade one for the other; of the records none comes near."""

TOLERANCE_WITH_TRAFFIC = 2
"""The same for timesteps times memory times traffic. It is wider, because laps of a pipeline send more for less
memory."""


class ReferenceAt(NamedTuple):
    """What the reference of a puzzle scores at a size that is not shown: timesteps, peak memory in elements, and the
    elements that its busiest rank sends (None: not measured)."""

    size: Size
    timesteps: float
    peak_memory: int
    traffic: int | None = None

    def is_far_ahead_of(self, timesteps: float, peak_memory: int, traffic: int) -> bool:
        """True if these figures at the same size are much worse."""
        times = timesteps * peak_memory / (self.timesteps * self.peak_memory)
        sent = traffic / self.traffic if self.traffic else 1
        return times > TOLERANCE or times * sent > TOLERANCE_WITH_TRAFFIC


@dataclass(frozen=True, kw_only=True)
class SchedulePuzzle(Puzzle):
    """A coroutine to write, which every rank runs."""

    slug: str = field(init=False)
    """The goal's slug."""
    goal: Goal
    other_sizes: tuple[Size, ...]
    """Sizes other than the goal's at which a general schedule also works, in the same setting."""
    calls: tuple[str, ...]
    """The methods of Model that a solution is likely to need."""
    parameters: tuple[str, ...] = ()
    """Those of their parameters that the classic games do not have, and this one does: "group", "step"."""
    answer: str = ""
    """What a player is asked to predict before playing, and why it is so; the statement's last paragraph asks it."""
    reload_reason: str = RELOAD_REASON
    reload_advice: str = ""
    """What a schedule is told whose ranks end with less than they loaded (`Goal.steady`); else the calls decide."""
    sketch: PlaceSketch | None = None
    reference_at: tuple[ReferenceAt, ...] = ()
    """What the reference scores at the other sizes; `puzzles check` measures it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "slug", self.goal.slug)

    def reference_scores(self, size: Size) -> ReferenceAt | None:
        """What the reference scores at another size; None if that is not known."""
        return next((row for row in self.reference_at if row.size == size), None)


MODEL_CALLS = tuple(name for name in dir(Model) if not name.startswith("_"))
RULED_CALLS = tuple(name for name in MODEL_CALLS if name in FORMS)
"""The calls that can be forbidden: those that leave a trace."""

DECIDED = ("pass", "star")
"""What the targets of traffic and of a second step are for (`Goal.decides`)."""


def read_puzzle(slug: str, fields: Fields) -> SchedulePuzzle:
    targets = fields.table("targets", {"time": NO_LIMIT, "memory": NO_LIMIT})
    calls = fields.texts("calls", MODEL_CALLS)
    setting, size = _setting(fields), _size(fields.table("size"))
    goal = Goal(
        slug,
        size,
        _time(targets),
        targets.number("memory"),
        tuple(map(_record, _records(fields, size))),
        setting,
        host=_limit(targets, "host"),
        family=fields.one_of("family", FAMILIES, ""),
        traffic=_limit(targets, "traffic"),
        drift=_limit(targets, "drift"),
        steady=fields.flag("steady"),
        decides=fields.one_of("decides", DECIDED, "pass"),
        ideas=ideas_of(slug),
    )
    targets.done()
    return SchedulePuzzle(
        goal=goal,
        other_sizes=tuple(map(_size, fields.tables("other_sizes"))),
        reference_at=_elsewhere(fields),
        calls=calls,
        parameters=fields.texts("parameters", EXTENDED),
        answer=fields.text("answer", "").strip(),
        sketch=read_sketch(fields.table("sketch"), size) if "sketch" in fields else None,
        reload_reason=fields.text("reload_reason", RELOAD_REASON),
        reload_advice=fields.text("reload_advice", ""),
        **rules_of(fields, RULED_CALLS),
        **texts_of(fields),
    )


def _limit(fields: Fields, name: str) -> int | None:
    """A target that a puzzle may leave out."""
    return fields.number(name, least=0) if name in fields else None


def _setting(fields: Fields) -> Setting:
    table = fields.table("setting", {})
    given = {"costs": "classic", **table.rest()}
    if unknown := set(given) - set(SETTING_FIELDS):
        known = ", ".join(SETTING_FIELDS)
        raise table.refusal(f"there is no field '{min(unknown)}'; the fields are {known}", min(unknown))
    try:
        return setting_from_json(given)
    except PuzzleError as why:
        raise table.refusal(str(why).replace("this trace has ", "")) from None


def _time(targets: Fields) -> float:
    """The target in steps: a whole number, or a number with one decimal, such as 5.5."""

    def is_time(given: Any) -> bool:
        if type(given) is float:
            return 0 < given < NO_LIMIT and given == round(given, 1)
        return type(given) is int and given >= 1

    wanted = "a number of steps: whole (5 is met below 6), or in tenths (5.5 is met below 5.6)"
    content: float = targets.take("time", wanted, is_time)
    return content


def _size(fields: Fields) -> Size:
    size = Size(*(fields.number(name) for name in Size._fields))
    fields.done()
    return size


def _records(fields: Fields, size: Size) -> list[Fields]:
    """The rows of the best schedules known: the puzzle's own, or those of another puzzle of the game, whose size and
    setting are the same."""
    if "records_of" not in fields:
        return fields.tables("records")
    other = fields.text("records_of")
    said = said_of("schedule", other)
    if "records" not in said or _size(said.table("size")) != size:
        why = f"'{other}' is no schedule puzzle of the game with this size and with records of its own"
        raise fields.refusal(why, "records_of")
    return said.tables("records")


def _record(fields: Fields) -> Record:
    record = Record(
        _timesteps(fields),
        fields.number("peak_memory"),
        fields.text("by", ""),
        fields.one_of("family", FAMILIES, ""),
        _limit(fields, "traffic"),
        fields.texts("ideas", IDEAS),
    )
    fields.done()
    return record


def _elsewhere(fields: Fields) -> tuple[ReferenceAt, ...]:
    """What the reference scores at other sizes, each of which is there once."""
    found: dict[Size, ReferenceAt] = {}
    for row in fields.tables("reference_at"):
        size = _size(row.table("size"))
        if size in found:
            raise row.refusal(f"there is already a row with {size_text(size)}; keep one of them")
        found[size] = ReferenceAt(size, _timesteps(row), row.number("peak_memory"), _limit(row, "traffic"))
        row.done()
    return tuple(found.values())


def _timesteps(fields: Fields) -> float:
    def is_time(given: Any) -> bool:
        return type(given) in (int, float) and given >= 0

    return float(fields.take("timesteps", "a number of steps", is_time))
