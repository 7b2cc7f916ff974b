"""The tuner: spaces, search, and the experiment that compares two configurations. Standard library only."""
