"""The same without the gradient of the input."""

from solutions.engine.records.fsdp import FSDP


class FSDPLean(FSDP):
    with_dx = False
