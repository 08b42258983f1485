"""Pipeline schedules: the order of every rank's operations as data, no time."""
