"""A predictor with full histories, and the processes in which it is measured."""
