"""What the program's user reads: one line when measuring begins, and a summary at the program's end."""
