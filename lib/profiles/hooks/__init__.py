"""Files to import if a framework does not name the cells of its pipelines: they name cells for its profiler."""

from importlib import resources

FRAMEWORKS = ("torch", "megatron")


def hooks(framework: str) -> str:
    """The file for one of the frameworks."""
    return resources.files(__package__).joinpath(f"{framework}.txt").read_text(encoding="utf-8")
