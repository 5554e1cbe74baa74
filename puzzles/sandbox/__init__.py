"""Where other people's code runs: starts workers, talks to them, and limits what a run may use."""
