"""What `puzzles check --write` measures of the reference of a new schedule puzzle, which is a relay."""


def measured_rows(slug: str) -> str:
    """The end of the puzzle's file, after its targets."""
    return f"""
# Measured by 'puzzles check --write': what the reference scores.
[[records]]
timesteps = 5.1
peak_memory = 1_835_008
by = "solutions/{slug}.py"
family = "data parallelism"

[[reference_at]]
size = {{ layers = 3, batches = 4, ranks = 4 }}
timesteps = 7.9
peak_memory = 2_621_440
"""
