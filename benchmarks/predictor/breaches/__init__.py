"""Alerts and breach probabilities over simulated series, their scores, and rules of thumb beside them."""
