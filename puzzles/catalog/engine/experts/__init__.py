"""Every device has an expert, and every token asks for one: who sends what where, and how does it come back?"""

from puzzles.catalog.engine.chapter import Chapter

from . import balance_loss, exact_dispatch, find_the_race, gshard_top2, switch_dispatch

CHAPTER = Chapter(
    package=__name__,
    title="Split the experts",
    idea="every device has one expert, and tokens go where they are served best; how do they get there and back?",
    puzzles=(
        switch_dispatch.PUZZLE,
        balance_loss.PUZZLE,
        gshard_top2.PUZZLE,
        exact_dispatch.PUZZLE,
        find_the_race.PUZZLE,
    ),
)
