"""What commands do with a run of free play, which takes rich and the engine: they show it, or replay it on tensors."""

from .schedule.run_on_tensors import replay_trace as replay_trace
from .schedule.run_on_tensors import show_report as show_report
