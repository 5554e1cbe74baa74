"""Every device has an expert, and every token asks for one: who sends what where, and how does it come back?"""

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
