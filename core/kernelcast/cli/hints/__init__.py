"""`kernelcast hints`: lists hints with their outcomes, explains them, and stops trials."""
