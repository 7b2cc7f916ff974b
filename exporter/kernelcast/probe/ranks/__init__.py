"""Collective tunables: one decision for all ranks of a job.

The ranks meet by one exchange of texts every second or so (`cadence.py`, `group.py`, `messages.py`). The first rank
plans and judges (`leading.py`, with `pooled.py` for a trial and `searching.py` for a search); every rank runs the plan
(`council.py`, `followed.py`, `searched.py`). A process without other ranks tries a value in the same way (`alone.py`).
All of it runs on the program's thread.
"""
