"""Small mutations of the code, and which quick tests catch each: `make mutate`, or `python -m tests.mutate --help`.

A line that no test depends on may change unnoticed. Each row of `mutations.toml` changes one line in a way that a test
must notice; a row that no test notices needs a reason. Rows are written by hand, one rule of the game each. Tools that
derive mutations from the syntax were no choice: of thousands, most are equivalent or crash at once, and nobody reads
their names.
"""
