"""The engine's puzzles: references meet their targets exactly, wrong solutions are told what is wrong."""

from __future__ import annotations

import ast
import json
import re
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("numpy", reason="the engine needs numpy")
pytest.importorskip("greenlet", reason="devices in one process are greenlets")

from puzzles.cli import main
from puzzles.engine_catalog import ENGINE_PUZZLES, EnginePuzzle
from puzzles.engine_grade import grade_engine
from puzzles.engine_judge import judge
from puzzles.engine_pages import engine_starter

ROOT = Path(__file__).parent.parent
every_puzzle = pytest.mark.parametrize("puzzle", [pytest.param(p, id=slug) for slug, p in ENGINE_PUZZLES.items()])

FILES = {
    "DataParallel": "data_parallel",
    "OneBucket": "one_bucket",
    "RingAllReduce": "ring_all_reduce",
    "ZeRO1": "zero1",
    "FSDP": "fsdp",
    "FSDPLean": "fsdp_lean",
    "TensorParallel": "tensor_parallel",
    "SequenceParallel": "sequence_parallel",
    "PipelineInference": "pipeline_inference",
}

FIGURES = {
    "DataParallel": {"sent": 12_288, "flops": 20_480},
    "OneBucket": {"sent": 12_288, "flops": 20_480, "collectives": 1},
    "RingAllReduce": {"sent": 12_288, "messages": 6, "collectives": 0, "peak": 10_240},
    "ZeRO1": {"sent": 2 * 12_288, "weights": 10_240, "kept": 10_240},
    "FSDP": {"sent": 18_432, "flops": 24_576, "weights": 2_048, "peak": 9_088},
    "FSDPLean": {"sent": 15_360, "flops": 20_480, "weights": 2_048, "peak": 8_960},
    "TensorParallel": {"sent": 1_536, "flops": 24_576, "weights": 2_048},
    "SequenceParallel": {"sent": 1_536, "flops": 24_576, "weights": 2_048, "peak": 6_912},
    "PipelineInference": {"sent": 1_536, "messages": 12, "collectives": 0, "weights": 1_024, "clock": 15_360},
}
"""What the reference solutions measure."""


def source(slug: str) -> str:
    return (ROOT / "solutions" / "engine" / f"{FILES[slug]}.py").read_text(encoding="utf-8")


@every_puzzle
def test_the_reference_is_right_and_measures_what_the_table_says(puzzle: EnginePuzzle) -> None:
    cls = getattr(import_module(f"solutions.engine.{FILES[puzzle.slug]}"), puzzle.slug)
    judged = judge(puzzle, cls)
    assert judged.missed == ()
    assert {name: judged.figures[name] for name in puzzle.targets} == FIGURES[puzzle.slug]
    assert judge(puzzle, cls) == judged


@every_puzzle
def test_the_words_are_all_there(puzzle: EnginePuzzle) -> None:
    texts = (puzzle.title, puzzle.statement, puzzle.concept, puzzle.in_practice, puzzle.arithmetic, *puzzle.hints)
    assert all(text.strip() for text in texts)
    assert len(puzzle.hints) >= 3
    assert "`" in puzzle.hints[-1]
    years = {int(year) for year in re.findall(r"\b(?:19|20)\d\d\b", puzzle.concept + puzzle.in_practice)}
    assert years <= {source.year for source in puzzle.sources}
    assert puzzle.sources


@every_puzzle
def test_the_starter_is_not_attempted_and_has_every_method(puzzle: EnginePuzzle, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(engine_starter(puzzle))
    (cls,) = ast.parse(puzzle.starter).body
    assert isinstance(cls, ast.ClassDef)
    assert {"load_checkpoint", "forward", "backward"} <= {f.name for f in cls.body if isinstance(f, ast.FunctionDef)}
    assert grade_engine(str(path)) == ()
    path.write_text(engine_starter(puzzle).replace("raise NotImplementedError", "raise NotImplementedError()"))
    (verdict,) = grade_engine(str(path))
    assert (verdict.status, verdict.reason) == ("failed", "crash")
    assert "raised on device 0 of 4" in verdict.message


WRONG = {
    ("DataParallel", "nothing summed"): (
        "self.all_reduce(w0_grad)",
        "w0_grad",
        "failed: device 0, backward(), 'layer_0/weights' differs from what a single device computes: at [0, 0] it is",
    ),
    ("DataParallel", "averaged"): ("self.all_reduce(w1_grad)", "self.all_reduce(w1_grad, 'avg')", "failed: device 0"),
    ("DataParallel", "a name missing"): (
        '"layer_1/weights": self',
        '"w1": self',
        "failed: device 0, backward() should return a dictionary of layer_0/weights, layer_1/weights; it returned ",
    ),
    ("DataParallel", "gathered, then summed"): (
        "self.all_reduce(w0_grad)",
        "self.all_gather(w0_grad[None]).sum(0)",
        "over_target: correct, but bytes sent 18,432, and the target is 12,288",
    ),
    ("OneBucket", "two calls"): (
        "        w0_sum, w1_sum",
        "        bucket = self.all_reduce(bucket, group=[self.device_id])\n        w0_sum, w1_sum",
        "over_target: correct, but collective calls 2, and the target is 1",
    ),
    ("RingAllReduce", "a collective"): (
        "        return x\n",
        "        return self.all_reduce(x, 'max')\n",
        "over_target: correct, but bytes sent 24,576",
    ),
    ("RingAllReduce", "a wrong part"): ("(me - r + 1) % n", "(me - r) % n", "failed: device 0, forward() differs"),
    ("RingAllReduce", "everybody waits"): (
        "            self.send(right, parts[(me - r) % n])\n            parts[(me - r - 1) % n] +=",
        "            parts[(me - r - 1) % n] += self.receive(left)\n            parts[(me - r - 1) % n] +=",
        "failed: line 8: nobody can move: device 0 waits in receive(3)",
    ),
    ("ZeRO1", "a whole state"): (
        "(len(w) // n, w.shape[1])",
        "(len(w), w.shape[1])",
        "failed: line ",
    ),
    ("ZeRO1", "momentum forgotten"): (
        "self.momentum * state + shard",
        "shard",
        "failed: device 0, backward(), 'layer_",
    ),
    ("ZeRO1", "everything reduced"): (
        "shard = self.reduce_scatter(grad)",
        "shard = np.split(self.all_reduce(grad), self.num_devices)[self.device_id]",
        "over_target: correct, but bytes sent 36,864, and the target is 24,576",
    ),
    ("FSDP", "weights kept whole"): (
        "        z = x @ self.all_gather(self.w0)\n",
        "        self.whole = self.all_gather(self.w0)\n        z = x @ self.whole\n",
        "over_target: correct, but peak bytes ",
    ),
    ("FSDP", "parameters kept"): (
        "        self.w0[...] = np.split",
        "        self.kept = params\n        self.w0[...] = np.split",
        "over_target: correct, but bytes after loading 10,240, and the target is 2,048; and peak bytes",
    ),
    ("FSDPLean", "gathered for nothing"): (
        "        del z, grads\n",
        "        del z, grads\n        self.all_gather(self.w0)\n",
        "over_target: correct, but bytes sent 18,432, and the target is 15,360",
    ),
    ("TensorParallel", "no sum"): (
        "self.all_reduce(relu(z) @ self.w1)",
        "relu(z) @ self.w1",
        "failed: device 0, forward()",
    ),
    ("TensorParallel", "rows first"): (
        'np.split(params["layer_0/weights"], self.num_devices, axis=1)',
        'np.split(params["layer_0/weights"], self.num_devices)',
        "failed: line 20: raised on device 0 of 4, in load_checkpoint: ValueError: could not broadcast",
    ),
    ("SequenceParallel", "everything reduced"): (
        "self.reduce_scatter(relu(z) @ self.w1)",
        "np.split(self.all_reduce(relu(z) @ self.w1), 4)[self.device_id]",
        "over_target: correct, but bytes sent 1,920, and the target is 1,536",
    ),
    ("PipelineInference", "one after the other"): (
        "        return None\n",
        "        self.barrier()\n        return None\n",
        "failed: line ",
    ),
    ("PipelineInference", "nothing for the end"): (
        "        if self.device_id == self.num_devices - 1:\n            return y\n",
        "        if self.device_id == self.num_devices - 1:\n            return None\n",
        "failed: there are 0 outputs for 12 inputs",
    ),
    ("PipelineInference", "sent twice"): (
        "        self.send(self.device_id + 1, y)\n",
        "        self.send(self.device_id + 1, y)\n        self.send(self.device_id + 1, y)\n",
        "failed: ",
    ),
    ("PipelineInference", "all together"): (
        "        y = relu(x @ self.w)\n",
        "        y = relu(x @ self.w)\n        self.barrier()\n",
        "failed: ",
    ),
}


@pytest.mark.parametrize(("slug", "mistake"), WRONG)
def test_a_wrong_solution_is_told_what_is_wrong(slug: str, mistake: str, tmp_path: Path) -> None:
    old, new, wanted = WRONG[slug, mistake]
    assert old in source(slug)
    path = tmp_path / "mine.py"
    path.write_text(source(slug).replace(old, new))
    (verdict,) = grade_engine(str(path))
    told = re.sub(r"^line \d+: (device \d|there are)", r"\1", verdict.message)
    assert f"{verdict.status}: {told}".startswith(wanted), f"{verdict.status}: {told}"


def command(*words: str) -> Result:
    return CliRunner().invoke(main, words, catch_exceptions=False)


def test_the_commands_know_the_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "SequenceParallel" in command("list").output
    assert "FSDP: Gather, compute, discard" in command("show", "FSDP").output
    assert "Fully sharded data parallel" in command("show", "fsdp").output
    assert "A shard of a weight is 1,024 B" in command("show", "FSDP", "--about").output
    assert "hint 2 of 3" in command("hint", "ZeRO1", "-n", "2").output
    assert command("start", "OneBucket", "-o", "mine.py").exit_code == 0
    graded = command("engine", "grade", "mine.py")
    assert (graded.exit_code, "Nothing attempted" in graded.output) == (1, True)


def test_a_file_may_hold_schedules_and_classes(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    basic = (ROOT / "solutions" / "basic.py").read_text(encoding="utf-8")
    path.write_text(f"{basic}\n\n{source('TensorParallel')}")
    assert "1,536" not in command("grade", str(path), "--puzzle", "basic").output
    result = command("engine", "grade", str(path))
    assert result.exit_code == 0, result.output
    assert "1,536 of 1,536 bytes sent" in " ".join(result.output.split())
    told = json.loads(command("engine", "grade", "--json", str(path)).output)
    assert told["engine"][0]["results"][0]["figures"] == FIGURES["TensorParallel"]
    only = command("engine", "grade", str(path), "--puzzle", "TensorParallel")
    assert (only.exit_code, "basic" in only.output) == (0, False)


def test_a_class_of_the_wrong_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("FSDP = 3\n")
    (verdict,) = grade_engine(str(path))
    assert verdict.message == "line 1: FSDP is not a class; write 'class FSDP'"
    path.write_text("class FSDP(:\n")
    assert [v.reason for v in grade_engine(str(path))] in ([], ["syntax"])
