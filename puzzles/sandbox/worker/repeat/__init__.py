"""A run of a class as straight-line data: `recorder` writes it in each device, `repeated` runs it on other values.

The judge repeats a recording with meters of its own, on other values. In the sandbox and in the page, that
is in a process that runs no code of the player. If the results are right there, the recording is a program for the
puzzle, and what is counted of it is what that program needs. A forged recording that passes is a correct solution.
"""
