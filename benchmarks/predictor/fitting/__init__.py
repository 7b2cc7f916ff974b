"""Programs that fit what the predictor ships: the calibration of probabilities, and the factors of intervals."""
