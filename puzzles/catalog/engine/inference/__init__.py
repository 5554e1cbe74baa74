"""The weights lie on the host or on a disk: how does a layer come to the devices in time, and no sooner?"""

from puzzles.catalog.engine.chapter import Chapter

from . import host_cache, prefetch, stream

CHAPTER = Chapter(
    package=__name__,
    title="Inference from slower memory",
    idea="the weights are too many for the devices; which is fetched when, and from where?",
    puzzles=(stream.PUZZLE, prefetch.PUZZLE, host_cache.PUZZLE),
)
