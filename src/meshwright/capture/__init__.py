"""What one host has, gathered on that host into one small document (``meshwright capture``)."""
