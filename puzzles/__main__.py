"""`python -m puzzles` is the command `puzzles`."""

import gc
import sys

from puzzles.search_path import leave_out_current_folder

leave_out_current_folder()
gc.disable()  # modules are no garbage, and looking for some takes a tenth of the start
try:
    from puzzles.commands.main import main as main  # from the folders that are left
except KeyboardInterrupt:
    print("Interrupted.", file=sys.stderr)
    sys.exit(130)

gc.freeze()
gc.enable()

if __name__ == "__main__":
    main()
