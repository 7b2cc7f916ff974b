"""Scores of published forecasts, breach probabilities and alerts against the values that came.

`cycle.scores` records claims and outcomes; `published` gives the scores to the publisher; `cycling` saves the state. A
*claim* is one published interval or probability; it is *due* at a block. A series *crosses* when it reaches its limit.
"""
