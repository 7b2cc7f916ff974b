"""Modules that run when an interpreter starts, before the program does."""
