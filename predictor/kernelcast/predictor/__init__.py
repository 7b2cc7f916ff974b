"""Forecasts, predicted degradation and tuning hints, from what programs and devices write to Kafka."""
