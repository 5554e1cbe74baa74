"""Classes that beat the reference solutions in some figure: a record each."""
