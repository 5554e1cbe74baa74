"""Run by mpiexec: replays several games in each process."""

from __future__ import annotations

import json

from lib.engine.replay.replay import replay, replay_to_json
from tests.support.replays import GAMES


def answer(request: str) -> str:
    """The replays of the games that are named, in one text."""
    return json.dumps([replay_to_json(replay(GAMES[name].trace(), "mpi", small=True)) for name in json.loads(request)])
