"""Builds an autograder for Gradescope, with everything that it needs to grade without a network."""
