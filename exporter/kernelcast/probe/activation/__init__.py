"""Starting the probe: by a call, by the environment, or once the process has a CUDA context."""
