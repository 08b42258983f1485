"""Leaves, spines, rails and units of a listing, and which cable is on the wrong port."""
