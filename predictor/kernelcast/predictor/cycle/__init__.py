"""One forecasting cycle: from flagged series to forecasts, findings and their scores."""
