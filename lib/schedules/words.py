"""Words the refusals of textbook schedules: a reason, and a sentence over its facts."""

from lib.errors import Sentences

SAYS = Sentences(
    {
        "rank without cells": "rank {rank} has no cells; a timetable has work for every rank",
        "stage on several ranks": "stage {stage} has cells on {others} and on rank {rank}; put all on {where}",
        "microbatch on several ranks": "microbatch {batch} in stage {stage} is on rank {first} and on rank {rank}; put it on one",
        "incomplete cells": "for microbatch {batch} stage {stage} has {has}; it needs F and B once, or F, I and W once",
        "messages change places": "in this order messages between two ranks would change places, which needs tags",
        "version not made": "step {step} needs version {version} of layer {layer}, which is not made yet; this order is too far ahead for the microbatches of a step: flush, or take more of them",
        "replicas differ": "a replica computes another order than the others; a timetable has one order for all",
        "several microbatches": "rank {rank} computes {batches} microbatches in one {name}; take one at a time",
        "begun too early": "rank {rank} begins {begun} before it has computed all {depth} layers of {cell}",
    }
)
