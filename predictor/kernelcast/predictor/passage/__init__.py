"""First passage of many series at once: when each reaches its limit, with which probability, and when to alert."""
