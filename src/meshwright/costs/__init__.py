"""How long: bounds of collectives on loaded links."""
