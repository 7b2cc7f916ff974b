"""Metrics of GPUs, TPUs and the links between them."""
