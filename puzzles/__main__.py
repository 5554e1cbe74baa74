"""`python -m puzzles` is the command `puzzles`; a `lib.py` in the current folder does not come before ours."""

import gc
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

gc.disable()  # modules are no garbage, and looking for some takes a tenth of the start
from puzzles.commands.main import main  # noqa: E402  # from the folder that is first only now

gc.freeze()
gc.enable()

if __name__ == "__main__":
    main()
