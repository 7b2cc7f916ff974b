"""The measurement method by CUPTI: begins where it is allowed, reports every interval, yields to other profilers.

Opt-in (`KERNELCAST_CUPTI=1`). Everything is done on the probe's own thread, but for the moment in which a profiler that
the user starts takes CUPTI: then our kinds are disabled, and our buffers brought home, before it begins. Above its
budget the method measures in windows (`windows`): kinds are enabled and disabled while the program runs.
"""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from time import monotonic, monotonic_ns, thread_time, time_ns
from typing import Final

from kernelcast.probe.cupti.capability import capabilities
from kernelcast.probe.cupti.deltas import Absorber, Capability
from kernelcast.probe.cupti.library import (
    KINDS,
    SUBSCRIBED_ALREADY,
    SYNCHRONIZATION,
    WORK_KINDS,
    Cupti,
    CuptiError,
    open_cupti,
)
from kernelcast.probe.cupti.native import ActivityDecoder, Drain, NativeError, NativeSettings
from kernelcast.probe.cupti.watch import ProfilerWatch
from kernelcast.probe.cupti.windows.levels import Level
from kernelcast.probe.cupti.windows.windows import Windows
from kernelcast.probe.process.demangle import demangled
from kernelcast.probe.process.job import Job, job_of
from kernelcast.probe.recording.recorder import Recorder

METHOD: Final = "cupti"
OFF: Final = "off"
ACTIVE: Final = "active"
BACKED_OFF: Final = "backed_off"
YIELDED: Final = "yielded"

# Longest wait for the decoder to read the completed buffers.
SETTLE_MS: Final = 100
# Longest wait of a starting profiler for a report in progress.
LOCK_SECONDS: Final = 1.0
# Time between two attempts to take CUPTI from which an unknown client has kept us.
RETURN_SECONDS: Final = 30.0
REST_PER_REPORT_TIME: Final = 400.0
# The exporter's default interval; a later report would arrive an interval late.
LONGEST_REST_SECONDS: Final = 10.0
# CUPTI of CUDA 12.6: before it, switching kinds while CUDA graphs exist has ended programs (PyTorch, pull request
# 150957).
SWITCHING_VERSION: Final = 24
# Share of the records of a report without a usable time above which the method cannot follow the program; reports of
# fewer records say nothing about it.
MOST_UNTIMED_RATIO: Final = 0.01
FEWEST_JUDGED: Final = 1000
UNNAMED: Final = "more than 4094 kernel names or 4 MiB of them: later kernels count as other"
CROWDED: Final = "more kernels, variants or buckets in an interval than are kept apart"


@dataclass(frozen=True, slots=True)
class ActivityEnvironment:
    """Dependencies of the method; tests replace each by a double.

    Attributes:
        environ: The environment.
        decoder: Makes the decoder, which loads the C library.
        cupti: Opens libcupti.
        watch: Detects other profilers.
        capability: Returns a device's compute capability.
        clock: Monotonic seconds.
        native: Limits of the decoder's memory and windows.
        rest: Multiple of a report's processor time that passes until the next one: by default reports take at
            most 1/400 of a core. Records are decoded all the while; only their totals wait.
        step_clock: Monotonic nanoseconds, by which the program's steps end.
        unix_clock: Unix nanoseconds, by which the ranks of a job switch together.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    decoder: Callable[[], ActivityDecoder] = ActivityDecoder
    cupti: Callable[[Mapping[str, str]], Cupti] = open_cupti
    watch: ProfilerWatch = field(default_factory=lambda: ProfilerWatch(os.environ))
    capability: Capability = field(default_factory=capabilities)
    clock: Callable[[], float] = monotonic
    native: NativeSettings = field(default_factory=NativeSettings)
    rest: float = REST_PER_REPORT_TIME
    step_clock: Callable[[], int] = monotonic_ns
    unix_clock: Callable[[], int] = time_ns


class ActivityMethod:
    """Measures by CUPTI. No method raises; a lock protects all of them.

    Args:
        recorder: Receives the totals.
        environment: Dependencies; None makes the usual ones.
    """

    def __init__(self, recorder: Recorder, environment: ActivityEnvironment | None = None) -> None:
        self._recorder = recorder
        self._environment = environment or ActivityEnvironment()
        self._lock = threading.Lock()
        self._decoder: ActivityDecoder | None = None
        self._cupti: Cupti | None = None
        self._absorber = Absorber(recorder, demangled, self._environment.capability)
        self._ask_again = 0.0
        # Whether a profiler that the watch knows has had CUPTI: then who holds the subscription is no secret.
        self._seen = False
        self._final = False
        self._due = 0.0
        self._limits: list[str] = []
        self.untimed_ratio = 0.0
        """Share of records without a usable time in the last report that had enough of them."""
        self._windows: Windows | None = None
        # Device time by state since the window began, by device.
        self._seen_ns: dict[int, int] = {}
        self._opened_ns = 0
        # Length of a window that has ended and is not reported yet; 0 for none.
        self._window_ns = 0
        self.held_ns = 0
        """Time that CUPTI's callbacks have taken so far, on threads of the program or CUPTI's own, and our reports."""
        self.decoding_ns = 0
        """Processor time of the decoder's own thread so far."""
        self.state = OFF
        """`off`, `active`, `backed_off` while less than all is measured, or `yielded` to another profiler."""
        self.reason = "it was not started"
        """Why it is not active; while it is, which of its limits the program has passed."""

    @property
    def cost(self) -> tuple[float, ...]:
        """Step time with measuring over step time without: lower bound, estimate, upper bound; empty if unknown."""
        ratio = self._windows.ratio if self._windows is not None and self._measures else None
        return tuple(ratio) if ratio else ()

    def start(self) -> bool:
        """Begin if CUPTI is present, allowed and not in use; else `reason` says why not."""
        with self._lock:
            try:
                self._open()
                self._begin()
            except (CuptiError, NativeError) as error:
                yielded = isinstance(error, CuptiError) and error.code == SUBSCRIBED_ALREADY
                self._set_state(YIELDED if yielded else OFF, str(error))
            except Exception as error:  # noqa: BLE001  nothing here may reach the program
                self._set_state(OFF, f"unexpected: {type(error).__name__}: {error}")
            if self.state == OFF:
                self._close_decoder()
        return self._measures

    def tick(self) -> None:
        """Report what came since the last call, and look after other profilers: once per interval, on our thread."""
        with self._lock:
            error = _error_of(self._tick)
            if error:
                self._switch_off(error)

    def switch(self) -> float:
        """Begin or end a window if it is time; returns the seconds until the next one begins or ends."""
        with self._lock:
            if self._windows is None or not self._measures:
                return inf
            moment = self._windows.moment()
            if moment.measuring != self._windows.measuring:
                began = thread_time()
                error = _error_of(self._enable if moment.measuring else self._pause)
                self.held_ns += round(1e9 * (thread_time() - began))
                if error:
                    self._switch_off(error)
            return moment.next_ns / 1e9

    def stop(self, reason: str = "") -> None:
        """Disable the records, report the rest, close the decoder; safe to call twice, and without a start.

        Without a reason the program ends: what was said of the measuring stays said.
        """
        with self._lock:
            flush = self._flush if self._measures else _nothing
            last = (flush, self._environment.watch.release, lambda: self._report(final=True), self._close_decoder)
            errors = [_error_of(work) for work in last]
            said = self._recorder.current
            self._set_state(OFF, next(filter(None, errors), reason))
            if said is not None and not self.reason:
                self._recorder.current = said

    def forked(self) -> None:
        """Drop the references in a forked child: CUPTI and the decoder are the parent's."""
        self._lock = threading.Lock()
        self._decoder = self._cupti = None
        self.state, self.reason = OFF, "this process was forked from one that is measured"

    def yield_to_profiler(self, reason: str) -> None:
        """Leave CUPTI to a profiler that is about to begin; on the program's thread, in about the time of a flush."""
        if not self._lock.acquire(timeout=LOCK_SECONDS):
            return
        try:
            if self._measures:
                self._flush()
                self._yield(reason)
        except Exception as error:  # noqa: BLE001  nothing here may reach the program
            self._yield(f"{reason}; {error}")
        finally:
            self._lock.release()

    @property
    def _measures(self) -> bool:
        return self.state in {ACTIVE, BACKED_OFF}

    def _open(self) -> None:
        running = self._environment.watch.running()
        self._seen = self._seen or bool(running)
        reason = self._environment.watch.injected() or running
        if reason:
            raise CuptiError(reason, SUBSCRIBED_ALREADY)
        if self._decoder is None:
            decoder = self._environment.decoder()
            self._cupti = self._environment.cupti(self._environment.environ)
            decoder.open(
                self._environment.native,
                self._cupti.next_record,
                self._cupti.now_ns(),
                never_refuse=self._cupti.must_have_buffers,
            )
            self._decoder = decoder

    def _begin(self) -> None:
        """Register our callbacks and enable our kinds, which needs no subscription.

        Kineto before 7a3ba363 (2026-08) subscribes when it is first used and keeps that for life, so after a profiler
        that was seen we do not ask for it. Kineto registers its own callbacks at each start (enableCuptiActivities),
        disables its kinds at each stop, and has its buffers back before the stop returns (activityBuffers); we register
        ours again, because the last client gets all buffers. With TEARDOWN_CUPTI=1 it goes later: in the program's next
        call of CUDA it unsubscribes and ends CUPTI, with all kinds (teardownContext, CuptiCallbackApi.cpp).
        Source: libkineto/src/CuptiActivityApi.cpp of pytorch/kineto, 114171df.
        """
        cupti, decoder = self._cupti, self._decoder
        if cupti is None or decoder is None:
            return
        if not self._seen or self._environment.environ.get("TEARDOWN_CUPTI") == "1":
            cupti.free_for_us(decoder.callback("kc_subscriber"))
        if self._environment.environ.get("KERNELCAST_CUPTI_LATENCY") == "1":
            cupti.latency_timestamps()
        cupti.configure()
        cupti.register(decoder.callback("kc_requested"), decoder.callback("kc_completed"))
        if self._windows is None:
            self._windows = self._made_windows(cupti)
        self._enable()
        self._environment.watch.on_start(self.yield_to_profiler)
        self._limits = []
        self.untimed_ratio = 0.0
        self._set_measuring_state()

    def _made_windows(self, cupti: Cupti) -> Windows:
        environment = self._environment
        job = job_of(environment.environ)
        if job.ranks == 1 and not job.id:
            job = Job(str(os.getpid()), 1)
        return Windows(
            self._recorder,
            job,
            can_switch=cupti.version >= SWITCHING_VERSION,
            clock=environment.step_clock,
            unix_clock=environment.unix_clock,
        )

    def _enable(self) -> None:
        """Begin a window, with the kinds of the present level."""
        cupti, windows = self._cupti, self._windows
        if cupti is None or windows is None:
            return
        self._close_window()
        cupti.enable(KINDS if windows.waits else WORK_KINDS)
        if not windows.waits:
            cupti.disable([SYNCHRONIZATION])
        if not windows.measuring:
            self._seen_ns, self._opened_ns = {}, self._environment.step_clock()
        windows.switched(measuring=True)

    def _pause(self) -> None:
        """End a window. Its last kernels may still run, so their records are collected at the next tick."""
        if self._cupti is None or self._windows is None:
            return
        self._cupti.disable()
        self._windows.switched(measuring=False)
        self._window_ns = self._environment.step_clock() - self._opened_ns

    def _close_window(self) -> None:
        """Report what is left of a window that has ended; nobody knows what its time without records was."""
        window_ns, self._window_ns = self._window_ns, 0
        if not window_ns:
            return
        self._flush()
        self._report(final=True)
        for device in self._recorder.devices():
            unknown_ns = window_ns - self._seen_ns.get(device, 0)
            if unknown_ns > 0:
                self._recorder.device_time("unknown", unknown_ns, device)

    def _tick(self) -> None:
        watch = self._environment.watch
        if self._measures:
            watch.on_start(self.yield_to_profiler)  # modules that were loaded since
            other = watch.running()
            if other:
                self._yield(other)
        elif self.state == YIELDED and self._environment.clock() >= self._ask_again and not watch.running():
            self._return()
        if self._final or self._environment.clock() >= self._due:
            self._report_in_turn()

    def _report_in_turn(self) -> None:
        began = thread_time()
        self._close_window()
        if self._is_open and self._cupti is not None:
            self._cupti.flush()
        self._report(final=self._final)
        self._final = False
        spent = thread_time() - began
        self.held_ns += round(1e9 * spent)
        self._due = self._environment.clock() + min(spent * self._environment.rest, LONGEST_REST_SECONDS)

    def _return(self) -> None:
        self._ask_again = self._environment.clock() + RETURN_SECONDS
        try:
            self._open()
            self._begin()
        except (CuptiError, NativeError) as error:
            self._set_state(YIELDED, str(error))

    def _yield(self, reason: str) -> None:
        self._seen = self._final = True
        self._ask_again = 0.0
        self._set_state(YIELDED, reason)

    def _flush(self) -> None:
        if self._cupti is not None and self._decoder is not None:
            self._cupti.disable()
            self._cupti.flush(forced=True)
            self._decoder.settle(SETTLE_MS)

    @property
    def _is_open(self) -> bool:
        """Whether kinds are enabled."""
        return self._measures and self._windows is not None and self._windows.measuring

    def _report(self, *, final: bool) -> None:
        if self._decoder is None or self._cupti is None:
            return
        self._decoder.settle(SETTLE_MS)
        drain = self._decoder.drain(self._cupti.now_ns(), final=final)
        self.held_ns += drain.counts.held_ns
        self.decoding_ns += drain.counts.decode_ns
        for device in drain.devices:
            self._seen_ns[device.device] = self._seen_ns.get(device.device, 0) + sum(device.state_ns)
        self._absorber.absorb(drain, self._cupti.dropped())
        if self._measures:
            self._learn(drain, final=final)

    def _learn(self, drain: Drain, *, final: bool) -> None:
        """Judge what measuring costs; the state's reason says what is not measured, and which limits are passed."""
        counts, windows = drain.counts, self._windows
        if windows is None:
            return
        if counts.records >= FEWEST_JUDGED and not final:  # the last flush takes kernels that still run, without times
            self.untimed_ratio = counts.untimed / counts.records
        is_late = self.untimed_ratio > MOST_UNTIMED_RATIO
        before = windows.level
        windows.feed(
            records=counts.records,
            graph_launches=sum(kernel.graph_launches for kernel in drain.kernels),
            held_ns=self.held_ns,
            decoding_ns=self.decoding_ns,
            untimed=f"{self.untimed_ratio:.0%} of CUPTI's records have no usable time" if is_late else "",
        )
        if windows.exceeded:
            raise CuptiError(f"{windows.reason}; CUDA before 12.6 cannot measure in windows beside CUDA graphs")
        if windows.level is not before and windows.measuring:
            self._enable()
        passed = [text for number, text in ((counts.unnamed, UNNAMED), (counts.crowded, CROWDED)) if number]
        self._limits += [text for text in passed if text not in self._limits]
        self._set_measuring_state()

    def _set_measuring_state(self) -> None:
        windows = self._windows
        if windows is None:
            return
        state = BACKED_OFF if windows.level > Level.FULL else ACTIVE
        self._set_state(state, "; ".join(filter(None, [windows.reason, *self._limits])))

    def _close_decoder(self) -> None:
        decoder, self._decoder = self._decoder, None
        if decoder is not None:
            decoder.close()

    def _switch_off(self, reason: str) -> None:
        """Measure no more; the records until now are decoded, and `stop` reports them."""
        if self._measures:
            _error_of(self._flush)
        self._set_state(OFF, reason)

    def _set_state(self, state: str, reason: str) -> None:
        self.state, self.reason = state, reason
        if not self._measures:
            if self._windows is not None and self._windows.measuring:
                self._windows.switched(measuring=False)
            if self._cupti is not None:
                self._cupti.restore()
        self._recorder.status(METHOD, state, reason, cost=self.cost)


def _error_of(work: Callable[[], None]) -> str:
    """Run work; returns its error as text, empty without one: nothing here may reach the program."""
    try:
        work()
    except CuptiError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  as above
        return f"unexpected: {type(error).__name__}: {error}"
    return ""


def _nothing() -> None:
    """Flush nothing."""
