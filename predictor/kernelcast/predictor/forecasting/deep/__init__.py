"""Models that statsmodels fits in worker processes; this process only applies them."""
