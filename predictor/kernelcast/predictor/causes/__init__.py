"""Regimes, baselines and the causes of predicted degradation."""
