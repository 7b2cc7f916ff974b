"""Scores of published forecasts, breach probabilities and alerts against the values that came.

`cycle.claims` records claims and settles them, through `cycle.row_scores`; `published` gives the scores to the
publisher; `cycle_loop` saves the state. A *claim* is one published interval or probability; it is *due* at a block. A
series *crosses* when it reaches its limit.
"""
