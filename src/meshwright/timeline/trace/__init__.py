"""Trace event files: written, checked, read back."""
