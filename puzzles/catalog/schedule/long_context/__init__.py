"""The chapter Long context."""
