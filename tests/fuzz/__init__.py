"""Fuzzing: changed inputs for every reader of something that others have written. `make fuzz` runs it for a while."""
