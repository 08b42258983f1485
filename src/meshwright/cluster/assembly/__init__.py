"""From a cluster file to the fabric: node, fabric and NVLink domains put together."""
