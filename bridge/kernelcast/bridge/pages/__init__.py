"""Which series a scrape shows, in which order, and the headers and exemplars around their values."""
