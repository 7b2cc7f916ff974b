"""`python -m kernelcast.probe [options] -- python train.py …`."""

import sys

from kernelcast.probe.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
