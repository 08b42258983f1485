"""Where ranks sit."""
