"""Builds the file that Gradescope takes: an autograder with everything that it needs to grade without network."""
