"""Layout of a scrape: its series in order, headers and exemplars."""
