"""Adapters: spaces and tunables for CuPy, Triton, PyTorch, JAX and plain functions, which are imported when used."""
