"""Runs a schedule with PyTorch: a process for each rank, on this machine's loopback interface."""
