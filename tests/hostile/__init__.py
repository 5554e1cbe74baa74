"""Bodies of hostile submissions, as data for tests."""
