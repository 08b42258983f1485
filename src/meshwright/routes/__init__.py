"""Which hardware paths: spans, reach, and the bytes on every link."""
