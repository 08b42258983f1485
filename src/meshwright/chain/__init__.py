"""Put the rooms together: from a job file to a routed plan."""
