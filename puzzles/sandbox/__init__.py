"""The sandbox, our side: starts workers, talks to them, and limits what a run may use."""
