"""The chapter on pipelines: one story, from GPipe's memory and its bubble to a pipeline with neither."""
