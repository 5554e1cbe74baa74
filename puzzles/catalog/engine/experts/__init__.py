"""Chapter of expert parallelism: one expert on each device, with tokens dispatched to it and results combined."""

from puzzles.catalog.engine.chapter import Chapter

CHAPTER = Chapter(
    package=__name__,
    title="Split the experts",
    idea="every device has one expert, and tokens go where they are served best; how do they get there and back?",
    files={
        "SwitchDispatch": "switch_dispatch",
        "BalanceLoss": "balance_loss",
        "GShardTop2": "gshard_top2",
        "ExactDispatch": "exact_dispatch",
        "FindTheRace": "find_the_race",
    },
)
