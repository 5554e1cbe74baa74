"""Whether this program was started by mpiexec; asked without loading an MPI."""

from __future__ import annotations

import os

SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS")
"""What the process managers of Open MPI, MPICH and Slurm tell their processes."""


def started_by_mpiexec() -> bool:
    """Whether there are several of us."""
    return any(os.environ.get(name, "1") not in ("", "0", "1") for name in SIZES)
