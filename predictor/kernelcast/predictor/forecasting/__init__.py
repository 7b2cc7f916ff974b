"""Forecasts of many series at once: panels in, medians and quantiles out. Live cycles and backtests call it.

Pure functions of arrays, besides the processes in `deep`.
"""
