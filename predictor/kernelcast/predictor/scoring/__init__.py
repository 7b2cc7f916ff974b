"""Scores of published forecasts, breach probabilities and alerts against what came, and the site's own calibration."""
