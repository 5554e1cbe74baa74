"""Replay of a schedule's trace on the engine, with real tensors."""
