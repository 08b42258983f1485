"""Schedules as torch writes them: CSV files, with messages written out."""
