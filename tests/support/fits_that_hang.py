"""A process in place of the one that fits: it hangs on a first value of 0 and ignores SIGTERM, else answers at once."""

import signal
import sys
import time
from multiprocessing.connection import Connection

from kernelcast.predictor.forecasting.deep.messages import FitAnswer, FitRequest

HANG_SECONDS = 600.0

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with Connection(int(sys.argv[1])) as connection:
        while True:
            try:
                request = FitRequest.decode(connection.recv_bytes())
            except EOFError:
                break
            if request.values[0] == 0:
                time.sleep(HANG_SECONDS)
            connection.send_bytes(FitAnswer(seconds=float(request.values[0])).encode())
