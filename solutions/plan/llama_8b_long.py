"""Sixteen ranks share each sequence."""

from lib.planning import Job, Prediction, Split


def llama_8b_long(job: Job) -> tuple[Split, Prediction]:
    return Split(dp=8, cp=16), Prediction(gib=56, dominates="cp")
