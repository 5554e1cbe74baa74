"""Chapter of inference: weights in slower memory, fetched layer by layer, and keys and values in a cache."""

from puzzles.catalog.engine.chapter import EngineChapter

CHAPTER = EngineChapter(
    package=__name__,
    title="Serve a model",
    idea="weights come from slower memory, keys and values from a cache; what is needed where, and when?",
    files={
        "Stream": "stream",
        "Prefetch": "prefetch",
        "HostCache": "host_cache",
        "PrefillDecode": "prefill_decode",
    },
)
