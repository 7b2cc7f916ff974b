"""How much of the time kernels are measured, so that measuring stays within its budget.

`levels` chooses how much, `schedule` says when, `cost` learns from the program's own steps what measuring costs.
"""
