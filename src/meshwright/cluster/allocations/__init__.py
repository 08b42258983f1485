"""A job's hosts on the network: order, leaves, blocks, segments; tiers that a source lacks."""
