"""The weights lie on the host or on a disk: how does a layer come to the devices in time, and no sooner?"""

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
