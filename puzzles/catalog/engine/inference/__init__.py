"""Chapter of offloaded inference: weights on the host or a disk, brought to the devices layer by layer."""

from puzzles.catalog.engine.chapter import Chapter

CHAPTER = Chapter(
    package=__name__,
    title="Inference from slower memory",
    idea="the weights are too many for the devices; which is fetched when, and from where?",
    files={
        "Stream": "stream",
        "Prefetch": "prefetch",
        "HostCache": "host_cache",
    },
)
