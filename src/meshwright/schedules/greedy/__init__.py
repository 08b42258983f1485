"""Schedules made operation by operation: zero-bubble and the V-shapes."""
