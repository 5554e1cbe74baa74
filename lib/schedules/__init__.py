"""Textbook schedules for any size, to run, draw and read.

from lib import run
from lib.schedules import one_f_one_b, pipeline

outcome = run(pipeline(one_f_one_b), layers=4, batches=8, ranks=4)

An order is a `Timetable`, which is data: `print(one_f_one_b(4, 8))` shows it, and `Timetable.read` reads one written by
hand. `pipeline` plays any timetable, `code_of` writes it as a coroutine, and `timetable_of` reads it from a run.
"""

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
from .timetable import Cell, Timetable, timetable_of

__all__ = [
    "Cell",
    "Draft",
    "Timetable",
    "breadth_first",
    "chimera",
    "code_of",
    "ddp",
    "dualpipe",
    "dualpipev",
    "eager_1f1b",
    "fsdp_prefetch",
    "gpipe",
    "hanayo",
    "interleaved",
    "interleaved_zb",
    "one_f_one_b",
    "pipeline",
    "seq1f1b",
    "sequence_parallel",
    "tensor_parallel",
    "timetable_of",
    "v_half",
    "v_min",
    "zero1",
    "zero2",
    "zero3",
    "zb_h1",
    "zb_h2",
    "zb_v",
]
