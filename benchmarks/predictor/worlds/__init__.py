"""Test worlds for the predictor: healthy and faulty ways in which a series of a GPU fleet behaves."""
