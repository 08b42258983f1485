"""When every operation of a schedule runs: the event core, memory over time, trace files."""
