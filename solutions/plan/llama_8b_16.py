"""Replicas that share the optimizer's state and the gradients."""

from lib.planning import Job, Prediction, Split


def llama_8b_16(job: Job) -> tuple[Split, Prediction]:
    return Split(dp=job.gpus, zero=2), Prediction(gib=65, dominates="replicas")
