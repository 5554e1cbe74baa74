"""Chapter of offloaded inference: weights are on the host or a disk, and are fetched layer by layer."""

from puzzles.catalog.engine.chapter import EngineChapter

CHAPTER = EngineChapter(
    package=__name__,
    title="Inference from slower memory",
    idea="the weights do not fit on the devices; which do you fetch when, and from where?",
    files={
        "Stream": "stream",
        "Prefetch": "prefetch",
        "HostCache": "host_cache",
    },
)
