"""The eight classic puzzles, after Sasha Rush's: from one rank to pipelines of sharded weights."""
