"""What runs inside the sandbox: the keeper, and the child that it forks for each run of a player's function."""
