"""Steps of a worker that depend on the track, one module each: prepare a request, run the definition, return data."""
