"""The libraries that a device's arrays may be of: the only modules that know whether they are of numpy or of torch."""
