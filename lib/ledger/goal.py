"""The goal of a schedule puzzle: its size, its targets, and the best that is known."""

from dataclasses import dataclass
from math import floor
from typing import NamedTuple

from .costs import Costs
from .setting import CLASSIC_SETTING, Setting, Size

MEMORY_PRECISION = 100_000


class Record(NamedTuple):
    """The best known schedule at some point of the trade: steps, elements, who found it, its family, the elements
    that its busiest rank sends (None: not measured), and the ideas that it needs besides the puzzle's own: puzzles and
    tricks by name."""

    timesteps: float
    peak_memory: int
    by: str = ""
    """The file with the schedule, and its variant if it has several: 'records/fsdp.py: twice'. Or a person's name."""
    family: str = ""
    traffic: int | None = None
    ideas: tuple[str, ...] = ()

    @property
    def figures(self) -> tuple[float, int, int | None]:
        """What it is compared in."""
        return self.timesteps, self.peak_memory, self.traffic

    @property
    def file_and_variant(self) -> tuple[str, str]:
        """The file, and the key of the variant in its VARIANTS; an empty key for the file as it stands."""
        file, _, variant = self.by.partition(".py: ")
        return (f"{file}.py", variant) if variant else (self.by, "")

    def is_of(self, family: str) -> bool:
        """True if it is of this family; one whose family is not said counts in all."""
        return self.family in (family, "")

    def dominates(self, timesteps: float, peak_memory: int, traffic: int | None = None) -> bool:
        """True if this is at least as good in every figure that both have, and better in one."""
        both = zip(self.figures, (timesteps, peak_memory, traffic))
        pairs = [(mine, theirs) for mine, theirs in both if mine is not None and theirs is not None]
        return all(mine <= theirs for mine, theirs in pairs) and any(mine < theirs for mine, theirs in pairs)


@dataclass(frozen=True)
class Goal:
    """The targets of one puzzle: `time` in steps, whole or in tenths, `memory` in elements, stated to 100,000.

    They are compared at the precision in which they are stated, as in the original puzzles, so what counts are the
    limits: a `time` of 33 is met below 34 steps, one of 33.5 below 33.6, a `memory` of 4,100,000 below 4.2M elements.

    `records` are the best schedules known at this size, of every family; `family` is the one that the puzzle is about.
    `ideas` are those that stand in the puzzle's text, or before it on the path.
    `host`, where that is limited, is in elements parked on the tier of this name. `traffic` is the elements that the
    busiest rank may send, and `drift` the updates that a replica may make alone; None is any number. `steady`: the peak
    that counts is the one that a rank would need if training went on, and a rank ends with the updated form of what it
    began with. `decides` says what traffic and the steady peak are for: the "pass", or the third "star" only.
    """

    slug: str
    size: Size
    time: float
    memory: int
    records: tuple[Record, ...] = ()
    setting: Setting = CLASSIC_SETTING
    host: int | None = None
    family: str = ""
    traffic: int | None = None
    drift: int | None = None
    steady: bool = False
    decides: str = "pass"
    ideas: frozenset[str] = frozenset()

    @property
    def costs(self) -> Costs:
        return self.setting.costs

    def records_to_beat(self, family: str) -> tuple[Record, ...]:
        """The records that a schedule of a family is compared with: of the puzzle's own family, the records of that
        family that need no idea that comes later; of any other all, since such a schedule leaves the puzzle's idea to
        be better than all that is known."""
        if family != self.family:
            return self.records
        return tuple(record for record in self.records if record.is_of(family) and not self.untold(record))

    def untold(self, record: Record) -> tuple[str, ...]:
        """The ideas of a record that come only after this puzzle."""
        return tuple(idea for idea in record.ideas if idea not in self.ideas)

    @property
    def beyond(self) -> tuple[Record, ...]:
        """The records of the puzzle's own family that need an idea that comes later."""
        return tuple(record for record in self.records if record.is_of(self.family) and self.untold(record))

    def rivals(self, family: str) -> tuple[Record, ...]:
        """Those of them that meet the target of traffic; for the third star none of them may be better."""
        return tuple(record for record in self.records_to_beat(family) if self.meets_traffic(record.traffic or 0))

    @property
    def open_front(self) -> tuple[Record, ...]:
        """The records that no other beats, whatever their family: the best trades at this size."""
        return tuple(
            record for record in self.records if not any(other.dominates(*record.figures) for other in self.records)
        )

    def words(self, record: Record) -> str:
        """The figures of a record in words."""
        return figures_text(*record.figures, self.costs.time_words)

    @property
    def time_limit(self) -> float:
        """The least number of steps that is too many."""
        return self.time + 1 if isinstance(self.time, int) else (floor(round(self.time * 10, 6)) + 1) / 10

    @property
    def memory_limit(self) -> int:
        """The least number of elements that is too many."""
        return _limit(self.memory)

    @property
    def host_limit(self) -> int | None:
        """The least number of elements on the host that is too many; None if any number may be there."""
        return None if self.host is None else _limit(self.host)

    @property
    def traffic_limit(self) -> int | None:
        """The least number of elements sent by one rank that is too many; None if any number may be sent."""
        return None if self.traffic is None else _limit(self.traffic)

    @property
    def time_text(self) -> str:
        """The limit as people read it: '< 34'."""
        return f"< {self.time_limit:,}"

    @property
    def memory_text(self) -> str:
        """The limit as people read it: '< 4.2M'."""
        return _limit_text(self.memory_limit)

    @property
    def host_text(self) -> str:
        """The limit of the host as people read it: '< 5.3M'; empty without one."""
        return "" if self.host_limit is None else _limit_text(self.host_limit)

    @property
    def traffic_text(self) -> str:
        """The limit of traffic as people read it: '< 1.6M'; empty without one."""
        return "" if self.traffic_limit is None else _limit_text(self.traffic_limit)

    @property
    def traffic_words(self) -> str:
        """The same with what it decides, if that is not the pass: '< 1.6M for the third star'."""
        for_star = self.traffic_text and self.decides == "star"
        return f"{self.traffic_text}{' for the third star' if for_star else ''}"

    def meets_time(self, timesteps: float) -> bool:
        return timesteps < self.time_limit

    def meets_memory(self, elements: int) -> bool:
        return elements < self.memory_limit

    def meets_host(self, elements: int) -> bool:
        """Compared as memory is; without a limit everything meets it."""
        return self.host_limit is None or elements < self.host_limit

    def meets_traffic(self, elements: int) -> bool:
        """Compared as memory is; without a limit everything meets it."""
        return self.traffic_limit is None or elements < self.traffic_limit

    def meets_drift(self, updates: int) -> bool:
        """True if no replica makes more updates alone than it may."""
        return self.drift is None or updates <= self.drift


def figures_text(timesteps: float, peak_memory: int, traffic: int | None = None, time_words: str = "timesteps") -> str:
    """'12.1 timesteps, 1,966,080 elements and 1,572,864 elements sent'; without a traffic that is 0 or not measured."""
    words = [f"{timesteps:,.10g} {time_words}", f"{peak_memory:,} elements"]
    words += [f"{traffic:,} elements sent"] if traffic else []
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _limit(elements: int) -> int:
    return (elements // MEMORY_PRECISION + 1) * MEMORY_PRECISION


def _limit_text(elements: int) -> str:
    return f"< {elements / 1_000_000:g}M"
