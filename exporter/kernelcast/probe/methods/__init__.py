"""How this process is measured, and what that may cost."""
