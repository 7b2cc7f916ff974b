"""`kernelcast demo`: the whole loop on one machine, live in the terminal."""
