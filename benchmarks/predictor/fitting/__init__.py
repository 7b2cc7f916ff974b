"""Programs that fit the shipped calibration of probabilities and the shipped factors of intervals."""
