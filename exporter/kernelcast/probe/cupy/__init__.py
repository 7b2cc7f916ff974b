"""CuPy's kernel launches: counted at every launch, timed at some."""
