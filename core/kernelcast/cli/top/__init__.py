"""`kernelcast top`: GPUs, kernels and predictions of one exporter or bridge, live in the terminal."""
