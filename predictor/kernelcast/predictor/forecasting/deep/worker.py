"""The worker process: reads windows from a connection, answers with models, ends when the connection is closed.

It runs at the lowest priority. SIGINT is ignored, so that Ctrl-C ends the predictor, which then closes the connection.
"""

import os
import signal
import sys
import warnings
from multiprocessing.connection import Connection

LOWEST_PRIORITY = 19
"""Highest number that `nice` takes: fits use only the time that other processes leave."""


def run(connection: Connection) -> None:
    """Answer until the connection ends."""
    from kernelcast.predictor.forecasting.deep.fitting import fit  # noqa: PLC0415  takes seconds, at low priority
    from kernelcast.predictor.forecasting.deep.messages import FitRequest  # noqa: PLC0415

    # After the import of statsmodels, which sets filters of its own; the outcome of each fit is in its answer.
    warnings.simplefilter("ignore")  # noqa: TID251  this process does nothing else

    while True:
        try:
            request = FitRequest.decode(connection.recv_bytes())
        except EOFError:
            return
        answer = fit(request).encode()
        try:
            connection.send_bytes(answer)
        except BrokenPipeError:
            return


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: TID251  the start of a process
    os.nice(LOWEST_PRIORITY)
    with Connection(int(sys.argv[1])) as _connection:
        run(_connection)
