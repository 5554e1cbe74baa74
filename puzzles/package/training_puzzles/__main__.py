"""`python -m training_puzzles` runs the `puzzles` command."""

import gc

gc.disable()  # modules are no garbage, and looking for some takes a tenth of the start
from puzzles.commands.main import main  # noqa: E402

gc.freeze()
gc.enable()

if __name__ == "__main__":
    main()
