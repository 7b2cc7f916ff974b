"""Facts about this process: its imports, mapped libraries, CUDA devices and other profilers."""
