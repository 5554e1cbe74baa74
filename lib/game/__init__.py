"""What is fixed before a run: sizes, costs, the setting and the goal."""
