import contextlib
import io
from datetime import UTC, datetime

import pytest

from compatgate.canary.executors.host_watch import skip_watch, watch_local
from compatgate.canary.health import Event, Gpu, Snapshot, read_log
from compatgate.canary.health.snapshot import Process

AT = datetime(2026, 11, 21, tzinfo=UTC)


def snapshot(*gpus):
    return Snapshot(AT, "535.104.05", gpus)


def gpu(index=0, **also):
    return Gpu(index, uuid=f"GPU-{index}", pci=f"0000:9{index}:00", **also)


@pytest.fixture
def watch(facts):
    def make(*looks, lines=(), problem=None):
        left = list(looks)

        @contextlib.contextmanager
        def log(table):
            class Kernel:
                def __init__(self):
                    self.problem = problem

                def events(self) -> tuple[Event, ...]:
                    return read_log(io.BytesIO(b"\n".join(lines)), table)[0].events()

            yield Kernel()

        def look():
            return left.pop(0) if len(left) > 1 else left[0]

        return watch_local(facts.xid, 3600, look=look, log=log)

    return make


def seen(watch, slots=(0,)):
    with watch(slots) as watching:
        pass
    return watching()


def test_a_sound_gpu_is_healthy(watch):
    assert seen(watch(snapshot(gpu()))).state == "healthy"


def test_a_step_without_gpus_is_not_watched(watch):
    assert seen(watch(None), slots=()).state == "unobserved"


def test_a_host_may_be_left_unwatched():
    with skip_watch((0,)) as watching:
        pass
    assert not watching().spoils(passed=True)


def test_no_nvml_is_unknown_and_spoils_the_result(watch):
    observed = seen(watch(None))
    assert observed.state == "unknown"
    assert observed.spoils(passed=True)


def test_a_slot_that_nvml_does_not_show_is_unknown(watch):
    assert seen(watch(snapshot(gpu(0))), slots=(0, 1)).state == "unknown"


def test_a_kernel_log_that_cannot_be_read_is_unknown(watch):
    observed = seen(watch(snapshot(gpu()), problem="/dev/kmsg: Operation not permitted"))
    assert (observed.state, observed.reason) == ("unknown", "/dev/kmsg: Operation not permitted")


def test_a_fatal_xid_meanwhile_makes_it_sick(watch):
    line = b"NVRM: Xid (PCI:0000:90:00): 79, pid=1, GPU has fallen off the bus."
    observed = seen(watch(snapshot(gpu()), lines=[line]))
    assert observed.state == "sick"
    assert "Xid 79" in observed.reason
    assert observed.body["actions"]


def test_an_xid_of_another_gpu_is_not_ours(watch):
    line = b"NVRM: Xid (PCI:0000:91:00): 79, pid=1, GPU has fallen off the bus."
    assert seen(watch(snapshot(gpu(0), gpu(1)), lines=[line])).state == "healthy"


def test_an_ecc_error_meanwhile_makes_it_sick(watch):
    before = snapshot(gpu(ecc_uncorrected_volatile=0))
    after = snapshot(gpu(ecc_uncorrected_volatile=1))
    assert seen(watch(before, after)).state == "sick"


def test_somebody_else_on_the_gpu_makes_it_shared(watch):
    busy = snapshot(gpu(processes=(Process(4711),)))
    assert seen(watch(busy)).state == "shared"


def test_a_slowed_gpu_excuses_a_failure_and_no_pass(watch):
    observed = seen(watch(snapshot(gpu(throttle=("hw_thermal_slowdown",)))))
    assert observed.state == "suspect"
    assert observed.spoils(passed=False)
    assert not observed.spoils(passed=True)
