"""The sandbox seen from the grader: it starts workers, talks to them, and limits what a run may use."""
