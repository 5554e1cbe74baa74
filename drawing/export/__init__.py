"""Exports of a run: text, files, the JSON of trace viewers, a web page."""
