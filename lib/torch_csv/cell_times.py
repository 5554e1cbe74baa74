"""When PyTorch did what a trace says: the measured times of cells, for each event of the trace."""

from collections.abc import Mapping, Sequence

from lib.communication.lanes import Cursor, Walk
from lib.communication.meetings import Call
from lib.game.setting import Game
from lib.trace.ops import Op, Trace, group_of

from .pipeline import Pipeline, Replica

Span = tuple[float, float]
CellTimes = Sequence[Mapping[str, Span]]
"""By rank, the start and end of each cell by its name."""


def event_times(pipeline: Pipeline, measured: CellTimes) -> list[list[Span]]:
    """By rank, the start and end of each event of the trace. The operations of a cell share its time equally, and what
    has no cell takes none: a message is sent at the end of the cell that made it, and received at the start of the cell
    that uses it."""
    only = pipeline.only()
    ranks = [_RankTimes(only, place, times) for place, times in enumerate(measured)]
    _Times(pipeline.trace, ranks).walk()
    rows = []
    for rank in ranks:
        timed = {id(op) for op in pipeline.trace.events(rank.rank)}
        rows.append([rank.spans[at] for at, op in enumerate(rank.ops) if id(op) in timed])
    return rows


class _RankTimes(Cursor):
    """A rank with what is known of its times: `spans` by operation; by value, the start of the first cell that `uses`
    it, and when it is `there`: made by a cell, or received."""

    def __init__(self, replica: Replica, place: int, times: Mapping[str, Span]) -> None:
        work = replica.works[place]
        super().__init__(work.rank, work.ops)
        self.now = 0.0
        self.spans: dict[int, Span] = {}
        self.uses: dict[int, float] = {}
        self.there: dict[int, float] = {}
        for cell, ats in replica.cells[place].items():
            start, end = times[str(cell)]
            length = (end - start) / len(ats)
            for n, at in enumerate(ats):
                self.spans[at] = start + n * length, start + (n + 1) * length
                for value in work.ops[at].inputs:
                    self.uses[value] = min(start, self.uses.get(value, start))
                self.there.update(dict.fromkeys(work.ops[at].outputs, end))


class _Times(Walk[_RankTimes]):
    """Gives every operation a time, a send before its receive. A call has its time where it is made."""

    def __init__(self, trace: Trace, ranks: Sequence[_RankTimes]) -> None:
        super().__init__(Game.of(trace.size, trace.setting), ranks, buffered=True)
        self.on_lanes = frozenset()

    def on_local(self, cursor: _RankTimes, op: Op) -> None:
        _, cursor.now = cursor.spans.setdefault(cursor.at, (cursor.now, cursor.now))

    def join(self, cursor: _RankTimes, op: Op) -> bool:
        self.on_local(cursor, op)
        cursor.at += 1
        return True

    def on_call(self, cursor: _RankTimes, op: Op) -> Call:
        return self.call(cursor, op, group_of(op), ())

    def perform(self, calls: Sequence[Call]) -> Sequence[tuple[()]]:
        return [()] * len(calls)

    def ticks(self, calls: Sequence[Call], outputs: Sequence[object]) -> int:
        return 0

    def on_end(self, cursor: _RankTimes, call: Call) -> None:
        if call.name != "pass_to":
            return self.on_local(cursor, call.op)
        time = max((cursor.there.get(value, cursor.now) for value in call.op.inputs), default=cursor.now)
        cursor.spans[cursor.at] = time, time

    def on_receive(self, cursor: _RankTimes, op: Op, sender: _RankTimes, sent_at: int) -> None:
        sent = sender.spans[sent_at][1]
        time = max(sent, min((cursor.uses[value] for value in op.outputs if value in cursor.uses), default=sent))
        cursor.spans[cursor.at] = time, time
        cursor.there.update(dict.fromkeys(op.outputs, time))
