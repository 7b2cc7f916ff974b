"""Forecasts of many series at once: panels in, parameters and quantiles or paths out."""
