"""Executors: run a player's class on all devices, in this process or on MPI."""
