"""Scores of what cycles publish: claims made, compared with the values that came, and counted."""
