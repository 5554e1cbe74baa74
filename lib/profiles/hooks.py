"""A few lines that name the cells of a framework for its profiler, where the framework does not."""

from __future__ import annotations

TORCH = '''\
"""Names the cells of torch.distributed.pipelining for torch.profiler. Import this file before the first step.

It is for Schedule1F1B, which names nothing. Tried with PyTorch 2.13 on processors; not tried on GPUs.
"""

from torch.distributed.pipelining.stage import _PipelineStageBase
from torch.profiler import record_function

METHODS = {"forward_one_chunk": "F", "backward_one_chunk": "B", "backward_weight_one_chunk": "W"}


def name_cells(method, op):
    def named(self, chunk, *args, **more):
        half = "I" if op == "B" and not more.get("full_backward", True) else op
        with record_function(f"PP:{self.stage_index}{half}{chunk}"):
            return method(self, chunk, *args, **more)

    return named


for name, op in METHODS.items():
    setattr(_PipelineStageBase, name, name_cells(getattr(_PipelineStageBase, name), op))
'''

MEGATRON = '''\
"""Names the cells of Megatron-LM for torch.profiler. Import this file before training begins, and run with
--use-pytorch-profiler.

Not tried. It is written for megatron.core.pipeline_parallel.schedules, whose forward_step has the arguments
current_microbatch and vp_stage; backward_step has neither, so backwards are counted, in the order of chunks that
interleaved 1F1B has. Groups of microbatches are taken to be as large as the pipeline has ranks.
"""

from collections import defaultdict
from inspect import signature

from megatron.core import parallel_state
from megatron.core.pipeline_parallel import schedules
from torch.profiler import record_function

p = parallel_state.get_pipeline_model_parallel_world_size
forward_step, backward_step = schedules.forward_step, schedules.backward_step
arguments = signature(forward_step)
counted = defaultdict(int)


def chunks():
    return parallel_state.get_virtual_pipeline_model_parallel_world_size() or 1


def stage(chunk):
    return parallel_state.get_pipeline_model_parallel_rank() + p() * chunk


def named_forward(*args, **more):
    given = arguments.bind(*args, **more).arguments
    batch = given.get("current_microbatch")
    if batch == 0 or batch is None:
        counted["backward"] = 0
    with record_function(f"PP:{stage(given.get('vp_stage') or 0)}F{batch}"):
        return forward_step(*args, **more)


def named_backward(*args, **more):
    group, place = divmod(counted["backward"], p() * chunks())
    counted["backward"] += 1
    chunk, batch = chunks() - 1 - place // p(), group * p() + place % p()
    with record_function(f"PP:{stage(chunk)}B{batch}"):
        return backward_step(*args, **more)


schedules.forward_step, schedules.backward_step = named_forward, named_backward
'''

HOOKS = {"torch": TORCH, "megatron": MEGATRON}
"""By framework, a Python file to import there."""
