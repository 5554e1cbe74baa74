"""Limits of a run: wall time, memory, output, files, processes. The player sees them and can set them."""

from typing import NamedTuple

from .deadline import TIME_LIMIT

MIB = 1 << 20


class Limits(NamedTuple):
    """The limits of one puzzle of one submission. Memory, output and files in bytes."""

    seconds: float = TIME_LIMIT
    """Of wall time, at all sizes together."""
    memory: int = 1024 * MIB
    """Of address space, for each process of a run."""
    output: int = 16 * MIB
    """Printed in one run; what is shown of it is much less."""
    files: int = 16 * MIB
    """Written to all files together; to one file where nothing adds them up."""
    processes: int = 4
    """Processes at once, the first one included. A run may start no thread."""
