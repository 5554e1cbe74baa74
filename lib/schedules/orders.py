"""The textbook orders of pipelines, for any number of ranks p, of microbatches m, and of chunks v of a rank.

A rank's row is written as a script of operations and chunks: `F1` is the forward of its chunk 1, and the k-th time that
this occurs it is that of microbatch k. `(F0B1)` are two that start together. What would be of microbatch m or later is
left out.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence

from lib.errors import RuleError

from .cells import Cell, Slot
from .settling import v_half_step, v_min_step
from .timetable import Timetable

Script = Callable[[int], str]
"""From a rank: what it does."""

CELL = re.compile(r"([FBIW])(\d+)")
SLOT = re.compile(r"\([^)]*\)|[FBIW]\d+")


def gpipe(p: int, m: int) -> Timetable:
    """All forwards, then all backwards (Huang et al. 2019, section 2.3)."""
    return _looped(p, m, 1, lambda r: "F0" * m + "B0" * m)


def one_f_one_b(p: int, m: int) -> Timetable:
    """A backward after each forward, as soon as the first one can be (Narayanan et al. 2019, section 3.2)."""
    return _looped(p, m, 1, lambda r: "F0" * (p - r - 1) + "F0B0" * m)


def interleaved(p: int, m: int, v: int = 2, group: int | None = None, warmup: int | None = None) -> Timetable:
    """1F1B on v chunks of a rank, `group` microbatches of a chunk at a time (Narayanan et al. 2021, section 2.2.2).

    A group has p microbatches, or more, as in PyTorch's ScheduleInterleaved1F1B if p does not divide m. The first rank
    has at most `warmup` forwards before the first pair of a forward and a backward, each further rank one less. With
    p v - 1, fewer activations are held, and ranks wait longer for messages.
    """
    backwards = [f"B{v - 1 - chunk}" for chunk in _in_groups(p, m, v, group)]
    return _interleaved(p, m, v, group, 2, lambda r: backwards, warmup)


def interleaved_zb(p: int, m: int, v: int = 2, group: int | None = None) -> Timetable:
    """Interleaved 1F1B with half the lead and with weight halves r late on rank r, as ZB-H1 has them.

    PyTorch has the order as ScheduleInterleavedZeroBubble.
    """
    back = [v - 1 - chunk for chunk in _in_groups(p, m, v, group)]

    def backwards(r: int) -> list[str]:
        pairs = [f"I{chunk}" + (f"W{back[n - r]}" if n >= r else "") for n, chunk in enumerate(back)]
        return pairs[:-1] + ["".join([*pairs[-1:], *(f"W{chunk}" for chunk in back[len(back) - r :])])]

    return _interleaved(p, m, v, group, 1, backwards)


def _in_groups(p: int, m: int, v: int, group: int | None) -> list[int]:
    """The chunks of a rank's forwards, one after the other."""
    size = max(p if group is None else group, 1)
    each = "one for each rank" if group is None else "the microbatches of a group"
    _require(m % size == 0, f"interleaved 1F1B needs a multiple of {size} microbatches, {each}; got {m}")
    return [k // size % v for k in range(m * v)]


def _interleaved(
    p: int, m: int, v: int, group: int | None, lead: int, backwards: Callable[[int], list[str]], most: int | None = None
) -> Timetable:
    """So many forwards ahead of the next rank, then a forward and a backward in turn."""
    forwards = [f"F{chunk}" for chunk in _in_groups(p, m, v, group)]
    first = (v - 1) * (p if group is None else group)
    least = first + p - 1
    _require(most is None or most >= least, f"the first rank needs at least {least} forwards of warm-up; got {most}")

    def script(r: int) -> str:
        ahead = min(lead * (p - r - 1) + first, m * v, m * v if most is None else most - r)
        back = backwards(r)
        pairs = zip(forwards[ahead:], back)
        return "".join(forwards[:ahead] + [one for pair in pairs for one in pair] + back[m * v - ahead :])

    return _looped(p, m, v, script)


def breadth_first(p: int, m: int, v: int = 2) -> Timetable:
    """All microbatches through a chunk before the next chunk (Lamy-Poirier 2022, section 4)."""
    script = "".join([f"F{chunk}" * m for chunk in range(v)] + [f"B{chunk}" * m for chunk in reversed(range(v))])
    return _looped(p, m, v, lambda r: script)


def zb_h1(p: int, m: int) -> Timetable:
    """1F1B whose weight halves run r microbatches late on rank r (Qi et al. 2024, section 2.1)."""
    return _looped(p, m, 1, lambda r: "F0" * (p - r - 1) + "F0I0" * r + "F0I0W0" * m)


def zb_h2(p: int, m: int) -> Timetable:
    """Twice as many forwards first: several steps leave no bubble between them (Qi et al. 2024, section 2.2)."""
    return _looped(p, m, 1, lambda r: "F0" * (2 * (p - r) - 2) + "F0I0" * (2 * r) + "F0I0W0" * m)


def zb_v(p: int, m: int) -> Timetable:
    """Two chunks of a rank in a V: the first rank has the first and the last stage (Qi et al. 2024, section 6).

    PyTorch has the order as ScheduleZBVZeroBubble.
    """
    n = max(2 * p - 1, m)

    def script(r: int) -> str:
        return (
            "F0" * (2 * (p - r) - 1)
            + "F1F0" * r
            + "F1I1W1" * (p - r)
            + "F0I0W0F1I1W1" * (n - 2 * p + r + 1)
            + "I0W0F1I1W1" * (p - r - 1)
            + "I0I1" * r
            + "I0W0" * (p - r)
            + "W1" * r
            + "W0" * r
        )

    return _v(p, m, script)


def v_min(p: int, m: int) -> Timetable:
    """The V of ZB-V with about a third of its memory (Qi et al. 2024, Controllable Memory, section 3)."""
    return _settled(v_min_step, p, m)


def v_half(p: int, m: int) -> Timetable:
    """The V of ZB-V with about half its memory (Qi et al. 2024, Controllable Memory, section 3)."""
    return _settled(v_half_step, p, m)


def _settled(step: Callable[[int, int], list[list[Cell]]], p: int, m: int) -> Timetable:
    _require(min(p, m) >= 1, f"ranks and microbatches are at least 1; got {p} and {m}")
    return Timetable.of(step(p, m))


def dualpipev(p: int, m: int) -> Timetable:
    """A forward of one chunk together with a backward of the other, in the V of ZB-V (DeepSeek-AI, DualPipe).

    Here nobody computes two things at once: such a slot computes the forward, then the backward, then sends both. It
    takes F + B. PyTorch has the order as ScheduleDualPipeV.
    """
    _require(m >= 2 * p, f"DualPipeV needs a microbatch for each of its {2 * p} stages; got {m}")

    def script(r: int) -> str:
        lower = p - r - 1  # the ranks below this one in the V
        main = "(F0B1)(F1B0)" * (m - 2 * p + r + 1)
        if not lower:
            main = "F0B1" + main.removeprefix("(F0B1)")
        turn = [f"{'B' if k <= r else 'I'}{1 - k % 2}" for k in range(2 * r + 2)]
        late = [f"W{one[1]}" for one in turn if one[0] == "I"] + ["W0"] * lower
        end = [f"{weight}I0" for weight in late[:lower]] + late[lower:]
        return (
            "F0" * (2 * lower) + "F0F1" * (r + 1) + "I1W1F1" * lower + main + "B1(F1B0)" * lower + "".join(turn + end)
        )

    return _v(p, m, script)


def _looped(p: int, m: int, v: int, script: Script) -> Timetable:
    """The chunks of rank r are the stages r, r + p, r + 2p, ..."""
    _require(min(p, m, v) >= 1, f"ranks, microbatches and chunks are at least 1; got {p}, {m} and {v}")
    return Timetable(tuple(_row(script(r), range(r, p * v, p), m) for r in range(p)))


def _v(p: int, m: int, script: Script) -> Timetable:
    """The chunks of rank r are stage r, and on the way back stage 2p - 1 - r."""
    _require(min(p, m) >= 1, f"ranks and microbatches are at least 1; got {p} and {m}")
    return Timetable(tuple(_row(script(r), (r, 2 * p - 1 - r), m) for r in range(p)))


def _row(script: str, stages: Sequence[int], m: int) -> tuple[Slot, ...]:
    """The slots of a script. A B counts as an I and as a W."""
    seen: Counter[str] = Counter()

    def cell(op: str, chunk: str) -> Cell:
        halves = [half + chunk for half in ("IW" if op == "B" else op)]
        batch = seen[halves[0]]
        seen.update(halves)
        return Cell(stages[int(chunk)], op, batch)

    slots = [[cell(*one) for one in CELL.findall(group)] for group in SLOT.findall(script)]
    return tuple(tuple(slot) for slot in slots if all(one.batch < m for one in slot))


def _require(met: bool, problem: str) -> None:
    if not met:
        raise RuleError(problem)
