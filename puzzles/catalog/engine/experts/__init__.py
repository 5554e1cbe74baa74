"""Chapter of expert parallelism: one expert per device; tokens are dispatched to it and results are combined."""

from puzzles.catalog.engine.chapter import EngineChapter

CHAPTER = EngineChapter(
    package=__name__,
    title="Split the experts",
    idea="every device has one expert, and tokens go to the expert they prefer; how do they get there and back?",
    files={
        "SwitchDispatch": "switch_dispatch",
        "BalanceLoss": "balance_loss",
        "GShardTop2": "gshard_top2",
        "ExactDispatch": "exact_dispatch",
        "FindTheRace": "find_the_race",
    },
)
