"""Transports with a process for each device: what they have in common. A carrier moves the bytes, by MPI or torch."""
