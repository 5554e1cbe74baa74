"""`python -m puzzles` is the command `puzzles`; a `lib.py` in the current folder does not come before ours."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from puzzles.commands.main import main  # from the folder that is first only now

if __name__ == "__main__":
    main()
