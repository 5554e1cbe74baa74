"""Schedules of pipelines as PyTorch exchanges them: a CSV file with a row for each rank and a cell for each action.

from lib.torch_csv import read_csv, write_csv

`write_csv(trace)` is what `torch.distributed.pipelining` loads (tried with PyTorch 2.13), `read_csv(text)` the
timetable that such a file holds. Neither needs torch.
"""

from .cell_times import event_times
from .files import read_csv, write_csv, write_table
from .pipeline import Pipeline

__all__ = ["Pipeline", "event_times", "read_csv", "write_csv", "write_table"]
