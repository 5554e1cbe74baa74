"""A finished folder of own puzzles, one of each track; and what `puzzles check --write` measures of the schedule."""

from pathlib import Path

from puzzles.teaching.writing import begin


def measured_rows(slug: str) -> str:
    """The end of the puzzle's file, after its targets."""
    return f"""
# Measured by 'puzzles check --write': what the reference scores.
[[records]]
timesteps = 5.1
peak_memory = 1_835_008
by = "solutions/{slug}.py"
family = "data parallelism"
traffic = 524_288

[[reference_at]]
size = {{ layers = 3, batches = 4, ranks = 4 }}
timesteps = 7.9
peak_memory = 2_621_440
traffic = 1_179_648
"""


TRACKS = ("schedule", "engine", "layout", "plan")
TARGETS = {
    "schedule": "\n[targets]\ntime = 5\nmemory = 1_800_000\n" + measured_rows("relay_schedule"),
    "engine": "\n[targets]\nsent = 6_144\npeak = 9_216\n",
    "layout": "\n[targets]\nbytes = 0\nmemory = 9_280\n",
    "plan": "\n[targets]\nseconds = 0.985\n",
}


def finished_folder(folder: Path) -> Path:
    """Writes relay_schedule, relay_engine, relay_layout and relay_plan into a folder, and returns it."""
    for track in TRACKS:
        file, *_ = begin(f"relay_{track}", track, folder)
        file.write_text(file.read_text().replace("TODO: ", "Done. ") + TARGETS[track])
    return folder
