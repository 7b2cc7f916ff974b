"""Stopping and reloading."""

import os
import signal

from kernelcast.runtime.lifecycle import Shutdown


def test_sigterm_asks_to_stop() -> None:
    with Shutdown().signals() as shutdown:
        os.kill(os.getpid(), signal.SIGTERM)

        assert shutdown.wait(5)


def test_a_second_signal_ends_the_process_at_once() -> None:
    codes: list[int] = []
    with Shutdown(exit_now=codes.append).signals():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    assert codes == [128 + signal.SIGINT]


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Shutdown().signals():
        pass

    assert signal.getsignal(signal.SIGTERM) is before


def test_sighup_runs_the_reload_callbacks_once_where_the_service_asks_for_it() -> None:
    ran: list[int] = []
    with Shutdown().signals() as shutdown:
        shutdown.on_reload(lambda: ran.append(1))
        os.kill(os.getpid(), signal.SIGHUP)
        answers = [shutdown.reload_if_asked(), shutdown.reload_if_asked()]

    assert answers == [True, False]
    assert ran == [1]


def test_a_loop_runs_until_asked_to_stop_without_signals() -> None:
    shutdown = Shutdown()
    turns = 0

    for _ in shutdown.every(0):
        turns += 1
        if turns == 3:
            shutdown.request()

    assert turns == 3
    assert shutdown.requested
