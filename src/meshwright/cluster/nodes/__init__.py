"""The inside of one host: node types, presets, PCIe paths, NVLink as switch or mesh, which GPUs to take."""
