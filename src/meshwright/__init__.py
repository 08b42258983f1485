"""Meshwright maps each communication group of a training job to the hardware paths it uses."""
