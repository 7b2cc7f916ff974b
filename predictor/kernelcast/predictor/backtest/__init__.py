"""Recorded series through the predictor's engine, each row judged from the rows before it: `kernelcast backtest`."""
