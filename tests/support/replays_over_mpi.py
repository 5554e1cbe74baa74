"""Run by mpiexec: replays several traces in each process."""

import json

from lib import trace_from_json
from lib.engine.replay.replay import replay, replay_to_json


def answer(request: str) -> str:
    """The replays of the traces that are asked for, in one text."""
    traces = map(trace_from_json, json.loads(request))
    return json.dumps([replay_to_json(replay(trace, "mpi", small=True)) for trace in traces])
