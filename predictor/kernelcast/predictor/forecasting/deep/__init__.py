"""Models that statsmodels fits in worker processes; the predictor's process only applies them.

`pool` has the processes, `schedule` the times of fits, `panel` the application to series.
"""
