"""Steps that were measured on one H100 (measured_h100.json), beside what the planner predicts. PyTorch 2.11; Llama and
GPT-2 of transformers 5.17 under FSDP2 on one rank, AdamW fused, 3 warm-up steps, the median of 7."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lib.planning import Job, Plan, Split, gpu, plan, transformer


@dataclass(frozen=True, eq=False)
class Measured:
    """A measured step: seconds, and the bytes that PyTorch's allocator had allocated and reserved at its peak."""

    name: str
    preset: str
    layers: int
    sequence: int
    microbatch: int
    recompute: str
    kernels: str
    parameters: int
    seconds: float
    optimizer_seconds: float
    allocated_bytes: int
    reserved_bytes: int

    @property
    def eager(self) -> bool:
        return self.kernels == "eager"

    @cached_property
    def plan(self) -> Plan:
        model = transformer(self.preset, layers=self.layers)
        job = Job(model, gpu("h100"), 1, self.microbatch, self.sequence, kernels="pytorch")
        return plan(job, Split(microbatch=self.microbatch, recompute=self.recompute))

    @property
    def predicted(self) -> float:
        return self.plan.eager_seconds if self.eager else self.plan.seconds

    @property
    def error(self) -> float:
        return self.predicted / self.seconds - 1


ROWS = [
    Measured(**row) for row in json.loads(Path(__file__).with_name("measured_h100.json").read_text(encoding="utf-8"))
]
