"""Runs a submission's class on MPI, one process per device. There is no sandbox: it is for the player's own code."""

import json
from collections.abc import Mapping
from typing import Any

from puzzles.failure import Failure
from puzzles.sandbox.plain_data import unpack
from puzzles.sandbox.worker.runner import disable_play
from puzzles.sandbox.worker.source import SubmissionCode
from puzzles.sandbox.worker.stages.stage import DefinitionSite
from puzzles.tracks.outcomes import RunOutcome, RunRequest
from puzzles.tracks.workbench import Runner


def runner_on_mpi(submission: Mapping[str, Any], slug: str) -> Runner:
    """Starts mpiexec for each run, with as many processes as the trial has devices. `submission` is what the sandbox
    would get: its name and text."""
    from lib.engine.transports.mpi.spawn import by_mpiexec

    def run(request: RunRequest) -> RunOutcome:
        devices = dict(unpack(request.data["trial"]))["devices"]
        text = json.dumps({"submission": submission, "slug": slug, "data": request.data})
        row = json.loads(by_mpiexec(devices, __name__, text))
        failure = None if row["failure"] is None else Failure(*row["failure"])
        return RunOutcome(row if row["defined"] and failure is None else None, failure)

    return run


def answer(request: str) -> str:
    """Runs the class in one of several processes under mpiexec; the row as the worker would send it."""
    given = json.loads(request)
    source = SubmissionCode(**given["submission"], slugs=[given["slug"]])
    return json.dumps({"defined": True, "failure": None, **_row(source, given["slug"], given["data"])})


def _row(source: SubmissionCode, slug: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
    from puzzles.sandbox.worker.stages.engine_trial import run_class  # here, because numpy is slow to import

    names: dict[str, Any] = {"__name__": "submission", "__file__": source.name}
    disable_play()
    try:
        assert source.code is not None, "the submission was read before"
        exec(source.code, names)
        if slug in names:
            return run_class(slug, names[slug], dict(unpack(data["trial"])), "mpi")
        failed = source.compiled.failure_of(slug, names)
        return {"defined": False} if failed is None else {"failure": list(failed)}
    except (Exception, SystemExit) as why:
        failure = DefinitionSite(source.name, source.lines.get(slug, 0)).failure_of(why)
        return {"failure": list(source.compiled.explained(failure, names))}
