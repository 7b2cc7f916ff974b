"""A CuPy program: the probe counts its kernel's launches and times some of them; hints may change the block size.

    python examples/cupy_saxpy.py --steps 1000

Start the probe before the first kernel is compiled: kernels that CuPy compiled earlier are not seen.
"""

import argparse

import cupy

from kernelcast import probe

SIZE = 1 << 22
SOURCE = r"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, int size) {
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < size) y[index] = a * x[index] + y[index];
}
"""


def main(arguments: list[str] | None = None) -> None:
    """Launch the kernel for some steps."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    steps = parser.parse_args(arguments).steps

    probe.start("cupy-saxpy")
    block = probe.tunable("block_size", [64, 128, 256, 512], 128, kind="block_size", kernels=["saxpy"])
    saxpy = cupy.RawKernel(SOURCE, "saxpy")
    x = cupy.ones(SIZE, dtype=cupy.float32)
    y = cupy.zeros(SIZE, dtype=cupy.float32)
    for _ in range(steps):
        with probe.region("saxpy"):
            threads = block.value  # read it at each launch: a hint may have changed it
            saxpy((-(-SIZE // threads),), (threads,), (cupy.float32(0.5), x, y, cupy.int32(SIZE)))
        probe.step()
    cupy.cuda.runtime.deviceSynchronize()
    print(f"{steps} steps, block size {block.value}")
    probe.stop()


if __name__ == "__main__":
    main()
