"""What the child does with the named definition of a submission, a module for each track; it sends plain data back."""
