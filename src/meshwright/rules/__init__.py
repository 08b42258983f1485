"""What may run, what will run badly, what was assumed."""
