"""Records a rank with torch.profiler, for `puzzles profile`: a replay names its cells as PyTorch's pipelines do."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from lib.errors import RuleError
from lib.rules.collectives import COLLECTIVES
from lib.torch_csv import Pipeline, slot_text, slots_of
from lib.trace.ops import Trace

from ..words import SAYS
from .rank import ReplayEngine
from .script import RankScript
from .workload import Workload


def names_of(trace: Trace) -> list[dict[int, str]]:
    """For each rank, the name of the cell that each operation belongs to, by the operation's index. A trace that is not
    a pipeline of PyTorch has no names; its profile shows collectives."""
    names: list[dict[int, str]] = [{} for _ in trace.ranks]
    try:
        replicas = Pipeline.of(trace).replicas
    except RuleError as why:
        if any(op.name in COLLECTIVES for ops in trace.ranks for op in ops):
            return names
        raise RuleError(SAYS("nothing to profile", why=why)) from None
    for work, cells in chain.from_iterable(zip(replica.works, replica.cells) for replica in replicas):
        end = -1
        for slot in slots_of(work, cells):
            ats = cells[slot[0]]
            if ats[0] <= end:
                raise RuleError(SAYS("cells alternate", slot=slot_text(slot), rank=work.rank))
            end = ats[-1]
            names[work.rank].update(dict.fromkeys(range(ats[0], end + 1), f"PP:{slot_text(slot)}"))
    return names


@contextmanager
def recorded(folder: str, rank: int) -> Iterator[None]:
    """Records the context with torch.profiler, and writes the profile to `rankN.json`."""
    from torch.profiler import profile

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it prints when it starts and stops
    with profile() as profiler:
        yield
    profiler.export_chrome_trace(str(Path(folder, f"rank{rank}.json")))


class RecordingEngine(ReplayEngine):
    """Plays a rank's part twice: first to warm up, then for the profiler, which writes to a folder. `names` comes from
    `names_of`."""

    def __init__(
        self, scripts: Sequence[RankScript], workload: Workload, names: Sequence[Mapping[int, str]], folder: str
    ) -> None:
        super().__init__(scripts, workload)
        self.names, self.folder = names[self.device_id], folder
        self.named, self.annotation = "", ExitStack()
        """The cell of the running operation, and the profiler's annotation for it."""

    def forward(self, x: Any) -> None:
        super().forward(x)
        super().__init__(self.scripts, self.workload)
        self.annotation.close()
        self.named = ""
        self.barrier()
        with recorded(self.folder, self.device_id), self.annotation:
            super().forward(x)

    def turn(self, at: int, call_runs: bool, runs_later: bool) -> None:
        name = self.named if call_runs else self.names.get(at, "")
        if name != self.named:
            from torch.profiler import record_function

            self.annotation.close()
            self.named = name
            if name:
                self.annotation.enter_context(record_function(name))
        super().turn(at, call_runs, runs_later)
