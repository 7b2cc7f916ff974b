"""`kernelcast demo`: all services on one machine as child processes, live in the terminal.

`command` reads the options, `run.Demo` starts and stops the children, `state.Gatherer` reads the bridge, Kafka and
Prometheus once a second, `view` draws, `summary` reports at the end. Except for `event_log`, all run on the main
thread.
"""
