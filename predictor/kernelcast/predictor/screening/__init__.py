"""Online state and robust statistics of all series, which select the ones to forecast."""
