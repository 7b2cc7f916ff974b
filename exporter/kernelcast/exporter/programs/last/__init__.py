"""Last reports of programs: written to disk when a connection ends, or left in a file by the program."""
