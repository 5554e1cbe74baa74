"""Independent programs: what the product computes, computed otherwise, and what papers and machines say it is."""
