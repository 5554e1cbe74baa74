"""What each operation requires and returns, as pure functions on values."""
