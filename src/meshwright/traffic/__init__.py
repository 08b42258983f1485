"""What groups say, how often, in which phase."""
