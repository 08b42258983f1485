"""What people and programs read: text, JSON, files of links."""
