"""Every error that kernelcast raises on purpose.

::

    KernelcastError
    ├── ConfigurationError      settings, flags, web configuration: exit code 2
    │   └── MissingExtraError   a command whose optional dependencies are not installed
    ├── BrokerError             Kafka refused, timed out or lost something we were promised
    │   └── BrokerAccessError   no connection with these settings; a command that only asks exits with 2
    ├── SourceError             an input of the exporter cannot be used
    │   ├── TraceError          a recording that is malformed or of another format
    │   ├── ServiceError        a service of the node (kubelet, a TPU's runtime) that refused or did not answer
    │   └── DeviceError         a device or its driver
    ├── WireError               bytes that break the contract
    │   ├── DecodeError         a message that is truncated, malformed or over a limit
    │   ├── DeltaError          a message with points of delta temporality
    │   ├── FrameError          a probe's frame
    │   └── EventError          a CloudEvent
    ├── RequestError            an HTTP request that asks for what cannot be: answered with 400
    ├── PageError               an address does not answer, or not with a page that can be shown
    ├── PrometheusError         Prometheus is unreachable, or refused a query
    └── TunableError            a tunable registered wrongly, in the program's own process
        └── SpaceError          a search space, or a configuration of one, that cannot be used
"""


class KernelcastError(Exception):
    """Root of everything kernelcast raises; the message says what, the value, the limit and the remedy."""


class ConfigurationError(KernelcastError):
    """A setting, a flag or a configuration file is wrong; the command exits with 2."""


class MissingExtraError(ConfigurationError):
    """A command needs an extra that is not installed; the message names the `pip install` that mends it."""


class BrokerError(KernelcastError):
    """Kafka refused, timed out, or did not acknowledge."""


class BrokerAccessError(BrokerError):
    """No broker can be reached with these settings: address, TLS or login. A command that only asks exits with 2.

    Attributes:
        found: The attempt, and why it failed.
        remedy: The remedy.
    """

    def __init__(self, found: str, *, remedy: str) -> None:
        super().__init__(f"{found}; {remedy}")
        self.found, self.remedy = found, remedy


class SourceError(KernelcastError):
    """An input of the exporter cannot be used."""


class TraceError(SourceError):
    """A recording that cannot be read as the format it is said to be."""


class ServiceError(SourceError):
    """A service of this node that refused, did not answer in time, or is not there.

    Attributes:
        reason: gRPC's name for it in lower case, such as `unavailable` or `deadline_exceeded`.
    """

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class DeviceError(SourceError):
    """A device, or the driver that speaks for it."""


class WireError(KernelcastError):
    """Bytes that break the contract between the parts."""


class DecodeError(WireError):
    """A message that is truncated, malformed, or over a limit; none of it is used."""


class DeltaError(WireError):
    """A message with points of delta temporality, which the bridge does not show; its other points are used."""


class FrameError(WireError):
    """A frame on the probe's socket that breaks the protocol."""


class EventError(WireError):
    """A CloudEvent that is not one, or lacks a field the contract requires."""


class RequestError(KernelcastError):
    """An HTTP request with a parameter or header that cannot be; the answer is 400 and this message."""


class PageError(KernelcastError):
    """An address does not answer, or not with a page that can be shown."""


class PrometheusError(KernelcastError):
    """Prometheus cannot be reached, refused a query, or answered something else.

    Attributes:
        status: Status of its HTTP answer; 0 where there was none.
        retry_after_seconds: Time after which it wants to be asked again; 0 where it did not say so.
        is_away: Whether nothing answers at its address, as while it or its network starts.
    """

    def __init__(
        self, message: str, *, status: int = 0, retry_after_seconds: float = 0.0, is_away: bool = False
    ) -> None:
        super().__init__(message)
        self.is_away = is_away
        self.status, self.retry_after_seconds = status, retry_after_seconds


class TunableError(KernelcastError):
    """A tunable that cannot be registered; raised in the program, when it registers."""


class SpaceError(TunableError):
    """A search space whose parameters, valid configurations or start cannot be used, or a configuration outside it."""
