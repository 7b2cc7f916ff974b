"""Forecasts, predicted degradation and tuning hints, from the metrics of programs and devices on Kafka."""
