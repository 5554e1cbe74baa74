"""What transports with a process for each device have in common. A carrier moves the bytes, by MPI or torch."""
