"""Words the refusals of profiles: a reason, and a sentence over its facts."""

from lib.errors import Sentences

SAYS = Sentences(
    {
        "no file": "there is no file to read; give the folder of a run, or a file for each rank",
        "no traceEvents": "{file} is not a profiler trace: it has no traceEvents{more}",
        "second file of rank": "{file} is a second file of rank {rank}; give one run",
        "other world_size": "rank {rank} has another world_size ({world}) than rank {first_rank} ({first_world}); give one run",
        "ranks missing": "no file of rank {missing} of {world} ({said}); profile all ranks, or give --ranks {given} for shares without causes",
        "other steps": "rank {rank} has other steps ({steps}) than rank {first} ({first_steps}); give one run",
        "incomplete step": "step {number} of rank {rank} is incomplete: microbatch {batch} has no {missing} in stage {stage}",
        "cells not once": "step {number} of rank {rank} has {has} for microbatch {batch} in stage {stage}; a step has each cell once",
        "no such operation": "'{name}' has the operation '{op}'; it is one of F, B, I and W",
        "no number": "'{name}' has '{got}' where the pattern has a number; match \\d+ there",
        "no such step": "there is no step {step}; steps are {steps}",
        "nothing ran": "no operation ran on rank {ranks}; profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] around a step",
        "no JSON file": "{folder} has no .json or .json.gz file; torch.profiler writes one for each rank",
        "ends within trace": "{file} ends at character {at}, within the trace; the profiler was stopped while it wrote",
        "too much": "{file} has more than {too_many}; profile fewer steps, or without stacks and shapes",
        "cut off": "{file} is cut off; the profiler was stopped while it wrote",
    }
)
