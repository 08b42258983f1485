"""Who talks to whom: the rank grid and the groups of each framework."""
