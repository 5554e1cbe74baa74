"""Schedules as data: textbook orders of any size, their names, lower bounds, and a search.

from lib import run
from lib.pipelines import one_f_one_b, pipeline, recognize

outcome = run(pipeline(one_f_one_b), layers=4, batches=8, ranks=4)
name = recognize(outcome.trace)

An order is a `Timetable`, which is data: `print(one_f_one_b(4, 8))` shows it, and `Timetable.read` reads one written by
hand. `pipeline` plays any timetable, `code_of` writes it as a coroutine, and `timetable_of` reads it from a run.
`solver` finds an order under a cap on memory, and `torch_csv` reads and writes PyTorch's files. A name is loaded with
its module when it is first asked for: to name a schedule, no textbook is loaded.
"""

from typing import TYPE_CHECKING

from lib import late

if TYPE_CHECKING:
    from .bounds import Bound, memory_bound, pipeline_memory_bound, pipeline_time_bound, time_bound, traffic_bound
    from .codegen import code_of
    from .data_parallel import ddp, fsdp_prefetch, sequence_parallel, tensor_parallel, zero1, zero2, zero3
    from .orders import (
        breadth_first,
        chimera,
        dualpipe,
        dualpipev,
        eager_1f1b,
        gpipe,
        hanayo,
        interleaved,
        interleaved_zb,
        one_f_one_b,
        seq1f1b,
        v_half,
        v_min,
        zb_h1,
        zb_h2,
        zb_v,
    )
    from .player import Draft, pipeline
    from .rank_work import recomputed
    from .recognition import Recognition, recognize, recognize_table
    from .timetable import Cell, Timetable, timetable_of

MODULES = {
    ".bounds": "Bound memory_bound pipeline_memory_bound pipeline_time_bound time_bound traffic_bound",
    ".codegen": "code_of",
    ".data_parallel": "ddp fsdp_prefetch sequence_parallel tensor_parallel zero1 zero2 zero3",
    ".orders": "breadth_first chimera dualpipe dualpipev eager_1f1b gpipe hanayo interleaved interleaved_zb "
    "one_f_one_b seq1f1b v_half v_min zb_h1 zb_h2 zb_v",
    ".player": "Draft pipeline",
    ".rank_work": "recomputed",
    ".recognition": "Recognition recognize recognize_table",
    ".timetable": "Cell Timetable timetable_of",
}
"""The exported names of each module."""

__all__ = sorted(" ".join(MODULES.values()).split())

if not TYPE_CHECKING:  # a type checker should still refuse unknown names
    __getattr__, __dir__ = late(__name__, MODULES)
