"""Figures that ship with the program, as files; each value names its source."""
