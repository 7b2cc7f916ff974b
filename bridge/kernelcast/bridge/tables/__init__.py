"""Arrays of series, families, labels, producers and bounds. All other rooms read them."""
