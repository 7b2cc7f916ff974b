"""Few alarms from many candidates: false-discovery control, groups, damping, and a budget of pages."""
