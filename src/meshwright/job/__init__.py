"""What is asked: model shapes, layout, batch, precision."""
