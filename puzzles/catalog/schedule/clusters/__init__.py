"""The chapter on clusters: several kinds of parallelism at once, each over the links that can carry it."""
