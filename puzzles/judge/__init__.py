"""From a file to verdicts: submissions, the one judge, classes of files, and what a player has solved."""
