"""Pipelines run by torch.distributed.pipelining: gradients equal one process's. Skipped without torch."""

import os
import re
import signal
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from docs.generate import gallery
from drawing import draw_replay
from lib import PuzzleError, Setting, run
from lib.engine.process_devices import how_it_ended
from lib.engine.replay import pipelining
from lib.engine.replay.pipelining import CLOSE, MeasuredRun, PipelineDevice, missing, run_pipelining
from lib.errors import install_command
from lib.pipelines import dualpipev, interleaved, one_f_one_b, pipeline, zb_h1, zb_v
from lib.pipelines.torch_csv import Pipeline, event_times, read_csv
from puzzles.catalog.schedule import PUZZLES
from puzzles.cli.main import main
from tests.ledger.test_trace_json import PAIRS
from tests.support.irregular_pipeline import LAYERS, MICROBATCHES, RANKS, irregular
from tests.support.schedules.random_pipelines import played
from tests.test_imports import ROOT

with_torch = pytest.mark.skipif(bool(missing()), reason=missing() or "PyTorch is there")


def irregular_trace() -> Any:
    outcome = run(irregular, LAYERS, MICROBATCHES, RANKS, setting=Setting("parts"))
    assert outcome.error is None
    return outcome.trace


ORDERS = {
    "1F1B": lambda: played(one_f_one_b(4, 8), depth=2),
    "ZB-H1": lambda: played(zb_h1(4, 8)),
    "ZB-V": lambda: played(zb_v(4, 8)),
    "interleaved": lambda: played(interleaved(4, 8)),
    "irregular": irregular_trace,
    "DualPipeV": lambda: run(pipeline(dualpipev(2, 6)), 4, 6, 2, setting=Setting(PAIRS)).trace,
}


@with_torch
@pytest.mark.parametrize(
    ("name", "communication"),
    [
        ("DualPipeV", True),
        *(
            pytest.param(name, communication, marks=pytest.mark.slow)
            for name, communication in [
                ("1F1B", False), ("ZB-H1", False), ("ZB-H1", True), ("ZB-V", False), ("ZB-V", True),
                ("interleaved", False), ("DualPipeV", False),
                ("irregular", False), ("irregular", True),
            ]
        ),
    ],
)  # fmt: skip
def test_gradients_are_those_of_one_process(name: str, communication: bool) -> None:
    order = Pipeline.of(ORDERS[name]())
    measured = run_pipelining(order, communication, width=48)
    assert measured.same
    assert measured.error > 0  # sums in another order differ in the last bits
    cells = order.only().cells
    assert [{str(cell) for cell in rank} for rank in cells] == [{*rank} for rank in measured.cells]
    require_in_order(order, measured)
    picture = draw_replay(order.trace, event_times(order, measured.cells), name, measured_first=True)
    assert picture.description.index("Measured") < picture.description.index("Predicted")


def require_in_order(order: Pipeline, measured: MeasuredRun) -> None:
    """A rank runs its cells one after the other in the order of the file, and each after what it needs. PyTorch runs
    cells that overlap one after the other."""
    table = order.table
    ends = {cell: span[1] for rank in measured.cells for cell, span in rank.items()}
    for row, rank in zip(table.rows, measured.cells):
        before = 0.0
        for cell in (cell for slot in row for cell in slot):
            start, end = rank[str(cell)]
            assert before <= start <= end
            assert all(ends[str(need)] <= start for need in table.needs.of(cell))
            before = end


@with_torch
def test_the_command_runs_a_puzzle_and_draws_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file of the player's folder has the name of a module, it is not run."""
    (tmp_path / "torch.py").write_text("raise SystemExit('the wrong torch')\n")
    (tmp_path / "lib.py").write_text("raise SystemExit('the wrong lib')\n")
    monkeypatch.chdir(tmp_path)
    picture = tmp_path / "measured.svg"
    path = str(ROOT / "solutions" / "zb_h1.py")
    words = ["run", path, "zb_h1", "--on", "torch", "--through", "pipelining", "-o", str(picture)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert ("4 stages, 8 microbatches," in said, "on 4 processes" in said) == (True, True)
    assert "gradients equal one process's" in said
    assert "Measured" in picture.read_text()


@with_torch
@pytest.mark.slow
def test_torch_reads_what_is_written_and_its_own_schedules_are_read(tmp_path: Path) -> None:
    """Its classes make the same orders as `lib.pipelines`, and its lowered form is read too."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B, ScheduleZBVZeroBubble

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        stages = [PipelineStage(torch.nn.Linear(2, 2), stage, 2, torch.device("cpu")) for stage in range(2)]
        for made, order in ((ScheduleInterleaved1F1B, interleaved(1, 4)), (ScheduleZBVZeroBubble, zb_v(1, 4))):
            theirs = made(stages, 4, loss_fn=torch.nn.MSELoss())
            file = tmp_path / "dumped.csv"
            for form in ("compute_only", "compute_comms"):
                theirs._dump_csv(str(file), form)
                assert str(read_csv(file.read_text())).replace("B", "I") == str(order).replace("B", "I")
    finally:
        dist.destroy_process_group()


@with_torch
def test_a_failure_of_pytorch_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelining, "write_csv", lambda *_: "0F0,0F0\n")
    with pytest.raises(PuzzleError, match=r"^PyTorch failed: \w+, .*device 0") as why:
        run_pipelining(Pipeline.of(played(one_f_one_b(1, 2))))
    assert "\n" not in str(why.value)


@with_torch
def test_a_run_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pauses(PipelineDevice):
        def forward(self, x: Any) -> Any:
            return signal.pause()

    monkeypatch.setattr(pipelining, "PipelineDevice", Pauses)
    with pytest.raises(PuzzleError, match=r"within 0.3 seconds; .*--time-limit"):
        run_pipelining(Pipeline.of(played(one_f_one_b(1, 2))), time_limit=0.3)


@with_torch
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, -3])
def test_who_ended_and_how_is_said(how: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ends(PipelineDevice):
        def forward(self, x: Any) -> Any:
            if self.device_id == 2:
                os._exit(-how) if how < 0 else os.kill(os.getpid(), how)
            return super().forward(x)

    monkeypatch.setattr(pipelining, "PipelineDevice", Ends)
    with pytest.raises(PuzzleError, match="device 2 of 3") as why:
        run_pipelining(Pipeline.of(played(one_f_one_b(3, 3))), width=8)
    said = str(why.value)
    assert ("exit code 3" if how < 0 else signal.Signals(how).name) in said
    assert ("memory" if how == signal.SIGKILL else "run it again") in said


def test_a_signal_without_a_name_has_its_number() -> None:
    assert "signal 60" in how_it_ended(-60)


# --- Without torch ---


def fake_version(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    def version(name: str) -> str:
        assert name == "torch"
        if not found:
            raise PackageNotFoundError(name)
        return found

    monkeypatch.setattr(pipelining, "version", version)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ("", "not installed"),
        ("2.6.0", "needs PyTorch 2.13"),
        ("2.12.1+cpu", "2.12.1"),
        ("2.13.0+cpu", ""),
        ("2.15.0", ""),
    ],
)
def test_a_schedule_from_csv_needs_a_version_that_loads_it(
    monkeypatch: pytest.MonkeyPatch, found: str, words: str
) -> None:
    fake_version(monkeypatch, found)
    assert words in missing()
    assert bool(words) == bool(missing())
    assert bool(found) != (install_command("torch") in missing())


def test_without_pytorch_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_version(monkeypatch, "")
    words = ["run", str(ROOT / "solutions" / "zb_h1.py"), "zb_h1", "--on", "torch", "--through", "pipelining"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert install_command("torch").replace(" ", "") in "".join(result.output.split())


def test_each_event_has_the_time_of_its_cell() -> None:
    """With measured times that are made up: 1 s a cell."""
    order = Pipeline.of(ORDERS["1F1B"]())
    cells = [{str(cell): (float(n), n + 1.0) for n, cell in enumerate(rank)} for rank in order.only().cells]
    for rank, spans in enumerate(event_times(order, cells)):
        events = order.trace.events(rank)
        computing = [span for op, span in zip(events, spans, strict=True) if op.name in ("forward", "backward")]
        assert all(end - start == 0.5 for start, end in computing)  # a stage has two layers
        assert computing == sorted(computing)
        assert sum(end - start for start, end in spans) == len(cells[rank])
    assert MeasuredRun(0.0, cells).seconds == 16.0


def test_gradients_that_differ_are_not_the_same() -> None:
    assert MeasuredRun(CLOSE / 2, []).same
    assert not MeasuredRun(2 * CLOSE, []).same


def test_replicas_are_exported_and_not_run() -> None:
    setting = Setting(mesh={"dp": 2, "pp": 2})
    trace = run(pipeline(one_f_one_b), 2, 4, 4, setting=setting).trace
    order = Pipeline.of(trace)
    assert len(order.replicas) == 2
    with pytest.raises(PuzzleError, match="2 replicas"):
        run_pipelining(order)


# --- What a refusal advises ---


def refusals() -> list[tuple[str, str]]:
    found = []
    for slug in PUZZLES:
        try:
            Pipeline.of(gallery.solved(slug).trace).only()
        except PuzzleError as why:
            found.append((slug, str(why)))
    return found


@pytest.mark.slow
def test_every_option_that_a_refusal_advises_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of all puzzles: the command is typed as the refusal says, and then PyTorch is asked to run it."""
    asked: list[Pipeline] = []

    def instead(order: Pipeline, *_: object, **__: object) -> MeasuredRun:
        asked.append(order)
        raise PuzzleError("that is far enough")

    monkeypatch.setattr("puzzles.tracks.schedule.run_on_tensors.run_pipelining", instead)
    advised = {slug: re.findall(r"(--\w+) ([\w=,]+)", said) for slug, said in refusals()}
    advised = {slug: options for slug, options in advised.items() if options}
    assert advised == {
        "breadth_first": [("--size", "4,4,2"), ("--mesh", "dp=1,pp=2")],
        "pipeline_fsdp": [("--size", "4,1,4")],
        "zb_h2": [("--steps", "1")],
        "weight_versions": [("--steps", "1")],
    }
    for slug, options in advised.items():
        typed = [word for option in options for word in option]
        words = ["run", str(ROOT / "solutions" / f"{slug}.py"), slug, "--on", "torch", "--through", "pipelining"]
        result = CliRunner().invoke(main, [*words, *typed])
        assert "that is far enough" in result.output, result.output
    assert [len(order.replicas) for order in asked] == [1, 1, 1, 1]


REWRITTEN = {"basic": "grad_accum", "pipeline": "gpipe", "checkpoint": "gpipe"}
"""By puzzle whose solution is refused for what it does: one that does the same work as the refusal says."""


@pytest.mark.slow
def test_what_else_is_advised_is_what_another_solution_does(capsys: pytest.CaptureFixture[str]) -> None:
    said = dict(refusals())
    for refused, other in REWRITTEN.items():
        assert re.search("take them one by one|leave that to the stage", said[refused])
        assert other not in said


# --- A replay on torch, by the command ---


@with_torch
def test_run_on_torch_replays_any_schedule_and_draws_what_was_measured_first(tmp_path: Path) -> None:
    picture = tmp_path / "measured.svg"
    solution = str(ROOT / "solutions" / "ddp_overlap.py")
    done = CliRunner().invoke(main, ["run", solution, "ddp_overlap", "--on", "torch", "--small", "-o", str(picture)])
    assert done.exit_code == 0, done.output
    assert "The updated weights equal" in done.output
    assert done.output.count("equal") == 1 + 4  # the weights, and the bytes of each rank
    text = picture.read_text(encoding="utf-8")
    assert text.index("Measured:") < text.index("Predicted:")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["fsdp.py", "fsdp", "--device", "cuda"], "--device, --through and --profile are for --on torch"),
        (
            ["engine/data_parallel.py", "DataParallel", "--on", "torch"],
            "DataParallel is judged with numpy; in your own program",
        ),
        (
            ["zb_h1.py", "zb_h1", "--on", "torch", "--through", "pipelining", "--small"],
            "takes no --device or --small",
        ),
        (["zb_h1.py", "zb_h1", "--on", "torch", "--communication"], "--communication is for --through pipelining"),
        (["zb_h1.py"], "name the puzzle after the file, as in 'puzzles run mine.py zb_h1'"),
        (["zb_h1.py", "zb_h1", "--on", "torch", "--no-tensors"], "are for a run on tensors; leave out --no-tensors"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(given: list[str], words: str) -> None:
    file, *options = given
    done = CliRunner().invoke(main, ["run", str(ROOT / "solutions" / file), *options])
    assert done.exit_code == 2
    assert words in " ".join(done.output.replace("│", " ").split())


@pytest.mark.skipif(bool(missing()), reason=missing() or "PyTorch is there")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = CliRunner().invoke(main, ["run", str(ROOT / "solutions/ddp.py"), "ddp", "--on", "torch", "--device", "cuda"])
    assert done.exit_code == 1
    assert "torch finds no GPU" in " ".join(done.output.split())
