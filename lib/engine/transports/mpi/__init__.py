"""The MPI transport: one process for each device."""
