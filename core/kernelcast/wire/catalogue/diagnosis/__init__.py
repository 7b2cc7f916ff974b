"""Rules that say what to change in a program, and the page that lists them."""
