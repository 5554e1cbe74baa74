"""The record of a run: its operations, its notation as JSON, and the lifetimes of its values."""
