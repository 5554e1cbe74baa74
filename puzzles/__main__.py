"""`python -m puzzles` is the command `puzzles`."""

import gc

from puzzles.search_path import leave_out_current_folder

leave_out_current_folder()
gc.disable()  # modules are no garbage, and looking for some takes a tenth of the start
from puzzles.commands.main import main as main  # noqa: E402  # from the folders that are left

gc.freeze()
gc.enable()

if __name__ == "__main__":
    main()
