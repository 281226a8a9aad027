"""Report this process's driver and GPUs; NVML, the kernel module and CUDA must agree."""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_driver  # noqa: E402
import canary_lines as say  # noqa: E402
from canary_nvml import NoNvml, Nvml  # noqa: E402

NO_GPU = 77
"""Exit status without a GPU, so that it does not count as a failure."""


def main():
    """Check everything; return exit status 0, or `NO_GPU`."""
    kernel = canary_driver.kernel_module()
    try:
        with Nvml() as nvml:
            _report(nvml, kernel)
    except NoNvml as why:
        if not why.mismatch:
            print(f"device-visible: no GPU: {why}")
            return NO_GPU
        say.env(driver=kernel)
        say.check("driver-agrees", False, f"{why}; the kernel module is {kernel}")
    return 0


def _report(nvml, kernel):
    devices = nvml.devices()
    # If MIG is on, CUDA uses the slices, never the whole GPU.
    usable = [part for d in devices for part in (nvml.slices(d) if nvml.mig(d) else [d])]
    driver = nvml.driver()
    say.env(
        driver=driver,
        gpus=[_described(nvml, d) for d in usable],
        driver_cuda=nvml.cuda(),
        kernel_module=kernel,
        devices=[_device(nvml, d) for d in devices],
        topology=[
            [i, j, nvml.path(devices[i], devices[j])]
            for i in range(len(devices))
            for j in range(i + 1, len(devices))
        ],
    )
    say.check("seen", bool(usable), f"{len(usable)} usable of {len(devices)} GPUs")
    say.check(
        "driver-agrees",
        kernel is None or kernel == driver,
        "NVML says {}, the kernel module {}".format(driver, kernel or "is not shown here"),
    )
    count, wrong = canary_driver.cuda_devices()
    said = wrong or f"CUDA sees {count}, NVML {len(usable)}"
    say.check("cuda-agrees", wrong is None and _agree(count, usable, nvml, devices), said)
    _check_slices([gpu["uuid"] for gpu in map(nvml.describe, usable) if gpu["mig"]])
    errors = {nvml.pci(d): nvml.uncorrected(d) for d in devices}
    bad = ", ".join(f"{where}: {count}" for where, count in errors.items() if count)
    say.check("ecc", not bad, bad or "no uncorrected errors since the driver was loaded")


def _check_slices(uuids):
    """Check that a process that names a MIG slice by its UUID gets that slice alone."""
    if not uuids:
        say.skip("slices", "no MIG slice here")
        return
    code = f"import sys; sys.path[:0] = {sys.path!r}; import canary_cuda as c; print(c.described())"
    wrong = []
    for uuid in uuids:
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", code],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid or ""},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if (
            done.returncode
            or not uuid
            or done.stdout.count("'uuid'") != 1
            or uuid not in done.stdout
        ):
            wrong.append(f"{uuid}: CUDA shows {done.stdout.strip()[:200]}")
    say.check("slices", not wrong, "; ".join(wrong) or f"{len(uuids)} slices open by their UUIDs")


def _agree(count, usable, nvml, devices):
    """Check that CUDA sees the devices of NVML, or one MIG device at most."""
    if any(nvml.mig(d) for d in devices):
        return count >= 1
    return count == len(usable)


def _described(nvml, device):
    """Describe a device; a slice has the compute capability of its GPU."""
    found = nvml.describe(device)
    if found["compute_capability"] is None:
        found["compute_capability"] = nvml.capability(nvml.devices()[0])
    return found


def _device(nvml, device):
    return {
        "pci": nvml.pci(device),
        "name": nvml.describe(device)["name"],
        "mig": nvml.mig(device),
        "ecc": nvml.ecc(device),
        "uncorrected": nvml.uncorrected(device),
        "nvlinks": nvml.nvlinks(device),
    }


if __name__ == "__main__":
    sys.exit(main())
