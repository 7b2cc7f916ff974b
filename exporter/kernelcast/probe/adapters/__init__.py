"""Adapters: spaces and tunables for CuPy, Triton, PyTorch, JAX and plain functions. None of these is imported here."""
