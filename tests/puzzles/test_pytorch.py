"""Schedules run by PyTorch: gradients are those of one process, and measured times are drawn. Skipped without torch."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from click.testing import CliRunner

from drawing import draw_replay
from lib import PuzzleError, Setting, run
from lib.extras import install_command
from lib.schedules import interleaved, one_f_one_b, pipeline, zb_h1, zb_v
from lib.torch_csv import Pipeline, read_csv
from puzzles.commands.main import main
from puzzles.pytorch import run as running
from puzzles.pytorch.event_times import event_times
from puzzles.pytorch.run import CLOSE, MeasuredRun, Scheduled, missing, run_all
from tests.support.irregular_pipeline import LAYERS, MICROBATCHES, RANKS, irregular
from tests.support.schedules.random_pipelines import played
from tests.test_imports import ROOT

with_torch = pytest.mark.skipif(bool(missing()), reason=missing() or "PyTorch is there")

PATIENCE = 500.0
"""Seconds for PyTorch; on a busy machine, importing it takes a minute."""


@pytest.fixture(scope="module")
def schedules() -> list[Scheduled]:
    setting = Setting("parts")
    outcome = run(irregular, LAYERS, MICROBATCHES, RANKS, setting=setting)
    assert outcome.error is None
    return [
        Scheduled.of("1F1B", played(one_f_one_b(4, 8), depth=2)),
        Scheduled.of("ZB-H1", played(zb_h1(4, 8))),
        Scheduled.of("ZB-H1", played(zb_h1(4, 8)), communication=True),
        Scheduled.of("ZB-V", played(zb_v(4, 8))),
        Scheduled.of("ZB-V", played(zb_v(4, 8)), communication=True),
        Scheduled.of("interleaved", played(interleaved(4, 8))),
        Scheduled.of("irregular", outcome.trace),
        Scheduled.of("irregular", outcome.trace, communication=True),
    ]


@with_torch
@pytest.mark.slow
def test_gradients_are_those_of_one_process(schedules: list[Scheduled]) -> None:
    for schedule, measured in zip(schedules, run_all(schedules, PATIENCE, width=48), strict=True):
        assert measured.same, schedule.name
        assert measured.error > 0  # sums in another order differ in the last bits
        cells = schedule.pipeline.cells
        assert [{str(cell) for cell in rank} for rank in cells] == [{*rank} for rank in measured.cells]
        require_in_order(schedule, measured)
        picture = draw_replay(schedule.trace, event_times(schedule, measured), schedule.name, measured_first=True)
        assert picture.description.index("Measured") < picture.description.index("Predicted")


def require_in_order(schedule: Scheduled, measured: MeasuredRun) -> None:
    """A rank runs its cells one after the other in the order of the file, and each after what it needs."""
    table = schedule.pipeline.table
    ends = {cell: span[1] for rank in measured.cells for cell, span in rank.items()}
    for row, rank in zip(table.rows, measured.cells):
        before = 0.0
        for (cell,) in row:
            start, end = rank[str(cell)]
            assert before <= start <= end
            assert all(ends[str(need)] <= start for need in table.needs.of(cell))
            before = end


@with_torch
@pytest.mark.slow
def test_the_command_runs_a_puzzle_and_draws_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file of the player's folder has the name of a module, it is not run."""
    (tmp_path / "torch.py").write_text("raise SystemExit('the wrong torch')\n")
    (tmp_path / "lib.py").write_text("raise SystemExit('the wrong lib')\n")
    monkeypatch.chdir(tmp_path)
    picture = tmp_path / "measured.svg"
    path = str(ROOT / "solutions" / "zb_h1.py")
    result = CliRunner().invoke(main, ["torch", path, "zb_h1", "-o", str(picture), "--time-limit", str(PATIENCE)])
    assert result.exit_code == 0, result.output
    assert "4 stages, 8 microbatches, on 4 processes" in result.output
    assert "gradients are those of one process" in result.output
    assert "Measured" in picture.read_text()


@with_torch
@pytest.mark.slow
def test_torch_reads_what_is_written_and_its_own_schedules_are_read(tmp_path: Path) -> None:
    """Its classes make the same orders as `lib.schedules`, and its lowered form is read too."""
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
@pytest.mark.slow
def test_a_failure_of_pytorch_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "write_csv", lambda *_: "0F0,0F0\n")
    with pytest.raises(PuzzleError, match="PyTorch failed on rank 0: "):
        run_all([Scheduled.of("x", played(one_f_one_b(1, 2)))], PATIENCE)


@with_torch
@pytest.mark.slow
def test_a_run_that_takes_too_long_is_ended() -> None:
    with pytest.raises(PuzzleError, match=r"did not end within 0\.2 seconds; give it more with --time-limit"):
        run_all([Scheduled.of("x", played(one_f_one_b(1, 2)))], 0.2)


# --- Without torch ---


def fake_version(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    def version(name: str) -> str:
        assert name == "torch"
        if not found:
            raise PackageNotFoundError(name)
        return found

    monkeypatch.setattr(running, "version", version)


@pytest.mark.parametrize(
    ("found", "words"), [("", "not installed"), ("2.14.1", "2.14.1 is installed"), ("2.13.0+cpu", "")]
)
def test_only_the_version_that_was_tried_is_used(monkeypatch: pytest.MonkeyPatch, found: str, words: str) -> None:
    fake_version(monkeypatch, found)
    assert words in missing()
    assert bool(words) == (install_command("torch") in missing())


def test_without_pytorch_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_version(monkeypatch, "")
    result = CliRunner().invoke(main, ["torch", str(ROOT / "solutions" / "zb_h1.py"), "zb_h1"])
    assert result.exit_code == 2
    assert install_command("torch") in result.output


def test_each_event_has_the_time_of_its_cell(schedules: list[Scheduled]) -> None:
    """With measured times that are made up: 1 s a cell."""
    schedule = schedules[0]
    cells = [{str(cell): (float(n), n + 1.0) for n, cell in enumerate(rank)} for rank in schedule.pipeline.cells]
    measured = MeasuredRun(0.0, cells)
    times = event_times(schedule, measured)
    for rank, spans in enumerate(times):
        events = schedule.trace.events(rank)
        computing = [span for op, span in zip(events, spans, strict=True) if op.name in ("forward", "backward")]
        assert all(end - start == 0.5 for start, end in computing)  # a stage has two layers
        assert computing == sorted(computing)
        assert sum(end - start for start, end in spans) == len(cells[rank])
    assert measured.seconds == 16.0


def test_gradients_that_differ_are_not_the_same() -> None:
    assert MeasuredRun(CLOSE / 2, []).same
    assert not MeasuredRun(2 * CLOSE, []).same


def test_replicas_are_exported_and_not_run() -> None:
    setting = Setting(mesh={"dp": 2, "pp": 2})
    trace = run(pipeline(one_f_one_b), 2, 4, 4, setting=setting).trace
    assert Pipeline.of(trace).replicas == 2
    with pytest.raises(PuzzleError, match="2 replicas"):
        Scheduled.of("x", trace)


@with_torch
def test_run_on_torch_replays_any_schedule_and_draws_what_was_measured_first(tmp_path: Path) -> None:
    picture = tmp_path / "measured.svg"
    solution = str(ROOT / "solutions" / "ddp_overlap.py")
    done = CliRunner().invoke(main, ["run", solution, "ddp_overlap", "--on", "torch", "--small", "-o", str(picture)])
    assert done.exit_code == 0, done.output
    assert "The updated weights are those of a single device, exactly." in done.output
    assert done.output.count("equal") == 4
    text = picture.read_text(encoding="utf-8")
    assert text.index("Measured:") < text.index("Predicted:")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["fsdp.py", "fsdp", "--device", "cuda"], "--device and --through are for --on torch"),
        (
            ["engine/data_parallel.py", "DataParallel", "--on", "torch"],
            "DataParallel is judged with numpy; in your own program",
        ),
        (["zb_h1.py", "zb_h1", "--on", "torch", "--through", "pipelining", "--small"], "takes no --fold, --device"),
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
    assert "torch finds no GPU here; leave out" in " ".join(done.output.split())
