"""One cycle: evaluates all series with a limit, forecasts those that are published, and finds causes and scores."""
