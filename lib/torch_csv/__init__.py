"""Schedules of pipelines as PyTorch exchanges them: a CSV file with a row for each rank and a cell for each action.

from lib.torch_csv import read_csv, write_csv

`write_csv(trace)` is what `torch.distributed.pipelining` loads (tried with PyTorch 2.13), `read_csv(text)` the
timetable that such a file holds. Neither needs torch.
"""

from .cell_times import event_times
from .pipeline import Pipeline
from .reader import read_csv
from .writer import write_csv, write_table

__all__ = ["Pipeline", "event_times", "read_csv", "write_csv", "write_table"]
