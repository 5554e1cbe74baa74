"""Builds the notebooks from their percent sources, the catalog and the solutions."""
