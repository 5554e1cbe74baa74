"""The chapter in microseconds: which schedule is right on H100-like machines, and where the other one becomes right."""
