"""Search spaces: parameters, their values, and the configurations that are valid."""

from kernelcast.tuning.space.configuration import Configuration
from kernelcast.tuning.space.parameters import Parameter, Value
from kernelcast.tuning.space.space import Space

__all__ = ["Configuration", "Parameter", "Space", "Value"]
