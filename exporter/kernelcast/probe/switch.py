"""The environment variable that switches the probe on. Every interpreter that has it set imports this: no imports."""

SWITCH = "KERNELCAST_PROBE"
OFF = ("", "0", "off", "no", "false")
"""Values, in lower case, that leave the probe off."""
