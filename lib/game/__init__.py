"""What is fixed before a run: sizes, costs, the setting, the goal, and folded replicas."""
