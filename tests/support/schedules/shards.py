"""Schedules that cut weights, states or tokens: tensor and sequence parallelism, experts, replicas of several steps."""

from __future__ import annotations

from lib import Model
from lib.pipelines import sequence_parallel, tensor_parallel
from solutions.expert_parallel import expert_parallel
from tests.catalog.lessons.families.replicas import experts, replicas
from tests.catalog.lessons.families.replicas import local as local_sgd

__all__ = [
    "data_parallel_steps", "expert_parallel", "experts_in_turn", "local_sgd", "sequence_parallel",
    "tensor_parallel_record",
]  # fmt: skip

experts_in_turn = experts(together=True)
data_parallel_steps = replicas("d", early=True)


async def tensor_parallel_record(model: Model) -> None:
    """Without a sum for the model's input, which nobody needs; the input is dropped and taken again."""
    await tensor_parallel(model, sum_of_the_input=False)
