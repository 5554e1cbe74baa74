"""`python -m puzzles` is the command `puzzles`."""

import gc
import sys

from puzzles.search_path import leave_out_current_folder

leave_out_current_folder()
gc.disable()  # modules are no garbage, and looking for some takes a tenth of the start
try:
    from puzzles.catalog.fields import OwnPuzzleError  # from the folders that are left

    try:
        from puzzles.cli.main import main as main  # here, since it reads the content, which may be at fault
    except OwnPuzzleError as why:  # in a file of the content
        print(f"Error: {why}", file=sys.stderr)
        sys.exit(2)
except KeyboardInterrupt:
    print("Interrupted.", file=sys.stderr)
    sys.exit(130)

gc.freeze()
gc.enable()

if __name__ == "__main__":
    main()
