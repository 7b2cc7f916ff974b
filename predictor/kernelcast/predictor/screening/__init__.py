"""Robust statistics of many series at once, on which baselines, trends and comparisons rest."""
