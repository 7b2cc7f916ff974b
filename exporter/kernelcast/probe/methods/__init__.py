"""Choice of the method that measures this process, within its budget."""
