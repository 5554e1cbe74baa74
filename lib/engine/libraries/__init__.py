"""The array libraries of devices: the only modules that know whether arrays are of numpy or of torch."""
