"""A leaderboard that nobody has to trust: entries are traces with a name, and every one is judged again."""
