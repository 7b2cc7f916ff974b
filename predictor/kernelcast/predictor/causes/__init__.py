"""Causes with evidence from features of GPUs and of kernels on them, and baselines of the fleet.

Pure functions of arrays, besides `SharedBaselines`. `cycle` calls them with live series, `backtest.causes` with
recorded ones. A *row* is one GPU, or one kernel of a program on a GPU.
"""
