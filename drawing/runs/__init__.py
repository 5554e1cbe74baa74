"""Pictures of runs: the timeline with its lanes and memory, comparisons, the Pareto plane."""
