"""Worlds: shapes of other people's series, healthy and faulty, run through the code of `kernelcast backtest`."""
