"""Reports on verdicts: terminal, HTML, files for other programs, feedback after a pass."""
