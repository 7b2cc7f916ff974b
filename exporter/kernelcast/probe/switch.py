"""Environment variables that switch the probe on, and that its command sets. Interpreters import this: no imports."""

SWITCH = "KERNELCAST_PROBE"
OFF = ("", "0", "off", "no", "false")
"""Values, in lower case, that leave the probe off."""
LAUNCH = "KERNELCAST_PROBE_LAUNCH"
"""The variable that names this run, so that what happens to many of its processes is reported once."""
REPORT = "KERNELCAST_PROBE_REPORT"
"""The variable with the path of the file for the summary of the run."""
