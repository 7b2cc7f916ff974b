"""Steps and their phases of a program that says nothing itself: marks on its framework's own functions."""
