"""Commands for developers, run from a checkout by `python -m lab.…`; no package of the wheel imports them."""
