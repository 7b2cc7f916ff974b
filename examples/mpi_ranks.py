"""Ranks of an MPI job that relax a row of cells, and tune the width of their halo together.

    mpirun -n 4 python examples/mpi_ranks.py --steps 10000

A wide halo needs fewer messages and more arithmetic. All ranks need the same width, so it is a collective tunable: the
ranks exchange one text every two seconds, and change the width in the same step. The rank comes from MPI's environment.
"""

import argparse

from mpi4py import MPI

from kernelcast import probe

CELLS = 2048


def relax(cells: list[float], times: int) -> list[float]:
    """Replace each inner cell by the mean of itself and its neighbours, some times."""
    for _ in range(times):
        cells = [sum(cells[at - 1 : at + 2]) / 3 for at in range(1, len(cells) - 1)]
    return cells


def main(arguments: list[str] | None = None) -> None:
    """Relax for some steps."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    steps = parser.parse_args(arguments).steps

    ranks = MPI.COMM_WORLD
    left, right = (ranks.rank - 1) % ranks.size, (ranks.rank + 1) % ranks.size
    probe.start("mpi-ranks", source="cpu", method="manual")
    # A communicator of its own: its messages meet no others of this program.
    halo = probe.tunable("halo", [1, 2, 4, 8], 1, scope="collective", group=ranks.Dup())
    cells = [float(ranks.rank)] * CELLS
    for _ in range(steps):
        width = halo.value
        with probe.region("exchange"):
            before = ranks.sendrecv(cells[-width:], dest=right, source=left)
            after = ranks.sendrecv(cells[:width], dest=left, source=right)
        with probe.region("relax"):
            cells = relax([*before, *cells, *after], width)
        probe.step(items=width)  # judged: seconds per relaxation
    print(f"rank {ranks.rank}: {steps} steps, halo {halo.value}, first cell {cells[0]:.3f}")
    probe.stop()


if __name__ == "__main__":
    main()
