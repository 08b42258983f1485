"""Shapes of models from Hugging Face configs: one file a sort of families."""
