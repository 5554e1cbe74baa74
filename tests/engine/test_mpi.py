"""The engine on MPI: the same bodies as in process, and what only processes can do wrong."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from click.testing import CliRunner

from lib import RuleError, run
from lib.engine.launcher import by_mpiexec
from lib.engine.replay.replay import replay
from puzzles.cli.main import main
from puzzles.tracks.schedule.run_on_tensors import on_transport
from tests.support import CLASSICS
from tests.support.engine_bodies import BODIES
from tests.support.mpi import mpiexec_or_skip
from tests.support.replays import trace_of

MPIEXEC = mpiexec_or_skip()
ROOT = Path(__file__).parents[2]
LONGEST = 240
"""Seconds of one start, which may run all bodies on a busy machine."""


def under_mpiexec(*words: str, n: int = 4) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [*MPIEXEC, "-n", str(n), sys.executable, *words]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LONGEST)


QUICK = (
    "memory_orders a_sent_array_may_be_changed many_large_messages only_the_last_device_writes averages "
    "a_raise_ends_all random_programs caught_errors_of_several_devices"
).split()
"""Bodies that are enough to see that MPI carries what the engine sends, and ends what it must."""


@pytest.fixture(scope="module")
def passed(request: pytest.FixtureRequest) -> Any:
    """One start for all bodies that were selected: how often each passed, and what was said otherwise."""
    tests = (item for item in request.session.items if isinstance(item, pytest.Function))
    bodies = [item.callspec.params["body"] for item in tests if item.function is test_on_mpi]
    ended = under_mpiexec("-m", "tests.support.engine_bodies", *bodies)
    return ended.stdout, ended.stderr


@pytest.mark.parametrize("body", [pytest.param(b, marks=[] if b in QUICK else pytest.mark.slow) for b in BODIES])
def test_on_mpi(body: str, passed: Any) -> None:
    out, err = passed
    assert out.count(f"passed {body}\n") == 4, err[-3000:]


SCRIPT = """
import os, pathlib, sys
import numpy as np
from lib.engine import ShardedEngine, launch

class Device(ShardedEngine):
    def load_checkpoint(self, params): pass
    def backward(self, grads): pass
    def forward(self, x):
        {body}

with launch(Device, num_devices=4, patience=0.3) as run:
    sys.stdout.write(f"{run.forward(np.ones(3))[0].sum():g}\\n")
"""


def script(tmp_path: Path, body: str, then: str = "") -> str:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.replace("{body}", body) + then)
    return str(path)


@pytest.mark.slow
def test_a_script_is_the_same_under_mpiexec_and_without(tmp_path: Path) -> None:
    path = script(tmp_path, "return self.all_reduce(x)")
    ended = under_mpiexec(path)
    assert (ended.returncode, ended.stdout.count("12\n")) == (0, 4), ended.stderr
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    alone = subprocess.run([sys.executable, path], env=env, capture_output=True, text=True, check=True)
    assert alone.stdout == "12\n"


@pytest.mark.slow
def test_a_raise_on_one_device_ends_all_with_its_traceback_once(tmp_path: Path) -> None:
    note = f"pathlib.Path({str(tmp_path)!r}, f'{{os.getpid()}}.pid').touch()\n        "
    path = script(tmp_path, note + "return self.receive(2) if self.device_id != 2 else 1 // 0")
    start = perf_counter()
    ended = under_mpiexec(path)
    assert ended.returncode != 0
    processes = [int(file.stem) for file in tmp_path.glob("*.pid")]
    assert len(processes) == 4
    for process in processes:  # no orphan
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    assert ended.stderr.count("ZeroDivisionError") == 1, ended.stderr
    assert "device 2 of 4," in ended.stderr
    assert "return self.receive(2)" in ended.stderr  # the line of the script
    assert perf_counter() - start < 10


@pytest.mark.slow
def test_a_device_that_never_hears_of_it_is_ended_too(tmp_path: Path) -> None:
    path = script(tmp_path, "while self.device_id == 1: pass\n        1 // 0")
    start = perf_counter()
    ended = under_mpiexec(path)
    assert ended.returncode != 0
    assert "ZeroDivisionError" in ended.stderr
    assert perf_counter() - start < 10


@pytest.mark.slow
def test_a_deadlock_is_named_after_the_set_time(tmp_path: Path) -> None:
    path = script(tmp_path, "return self.receive((self.device_id + 1) % 4)")
    ended = under_mpiexec(path)
    assert ended.returncode != 0
    assert "3 waits in receive(0)," in ended.stderr, ended.stderr
    assert "line 10 of script.py" in ended.stderr


ONE_MORE = """
    from mpi4py import MPI
    if MPI.COMM_WORLD.rank == 2:
        run.forward(np.ones(3))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return x", "RuleError: device 2 calls this run, and device 0 closes it; every process must make the same"),
        ("return self.all_reduce(x)", "devices 0, 1, 3 have returned; device 2 waits in all_reduce("),
    ],
    ids=["that meets nobody", "that meets the others"],
)
def test_a_call_of_only_one_process_is_reported_once(tmp_path: Path, body: str, words: str) -> None:
    ended = under_mpiexec(script(tmp_path, body, ONE_MORE))
    assert ended.returncode != 0
    assert ended.stderr.count(words) == 1, ended.stderr


@pytest.mark.slow
def test_unread_messages_are_reported_once(tmp_path: Path) -> None:
    ended = under_mpiexec(script(tmp_path, "self.send((self.device_id + 1) % 4, x)\n        return x"))
    assert ended.returncode != 0
    assert ended.stderr.count(": 1 from device 0") == 1, ended.stderr


@pytest.mark.slow
def test_a_program_may_finalize_mpi_itself(tmp_path: Path) -> None:
    ended = under_mpiexec(script(tmp_path, "return self.all_reduce(x)", "\nfrom mpi4py import MPI\nMPI.Finalize()\n"))
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
def test_a_wrong_number_of_processes_is_refused(tmp_path: Path) -> None:
    ended = under_mpiexec(script(tmp_path, "return x"), n=2)
    assert "got 2 processes for" in ended.stderr
    assert "'mpiexec -n 4" in ended.stderr


EXTENDED = ["hybrid_shard", "fsdp_prefetch", "ddp_overlap", "zb_h2 for two steps", "sequence_parallel"]
EXTENDED += ["expert_parallel", "local_sgd_twice", "ring", "tangle", "offload", "stream_inference"]
REPLAYED = {
    **{classic.slug: lambda classic=classic: run(classic.solution, *classic.size).trace for classic in CLASSICS},
    **{name: partial(trace_of, name) for name in EXTENDED},
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n == "ddp" else pytest.mark.slow) for n in REPLAYED])
def test_schedules_run_on_mpi_as_they_do_in_process(name: str) -> None:
    trace = REPLAYED[name]()
    there, here = on_transport(trace, "mpi", small=True), replay(trace, small=True)
    assert there.passed
    assert (there.error, there.ranks) == (here.error, here.ranks)


@pytest.mark.slow
def test_the_command_starts_the_processes_itself() -> None:
    words = ["run", str(ROOT / "solutions" / "ddp.py"), "ddp", "--small", "--on", "mpi", "-n", "4"]
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert (result.exit_code, "4 devices, mpi" in result.output) == (0, True), result.output


@pytest.mark.slow
def test_the_error_of_a_process_is_reported() -> None:
    with pytest.raises(RuleError, match="ended with code"):
        by_mpiexec(2, "lib.engine.replay.replay", "this is no request")
