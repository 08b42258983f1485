"""What a rank's memory holds: states, activations, communicators, overhead, by pipeline stage."""
