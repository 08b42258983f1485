"""What is there: fabric arrays, node types, presets, topology readers, their merge."""
