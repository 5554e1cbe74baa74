"""The version of the project, written once: the wheel's metadata and the notebooks' setup cell read it here."""

VERSION = "0.2.0"
