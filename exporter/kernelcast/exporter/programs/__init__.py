"""The daemon's end of the probe socket: programs connect here, report, and get hints."""
