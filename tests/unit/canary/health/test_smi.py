"""The state of GPUs from ``nvidia-smi -q -x``, as NVML would give it."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatgate.canary.health.snapshot import Process, ask_nvidia_smi, parse_smi

# The elements that are read of a document of driver 575, in their order.
GPU = """
<gpu id="00000000:9B:00.0">
  <product_name>NVIDIA H100 80GB HBM3</product_name>
  <persistence_mode>Enabled</persistence_mode>
  <mig_mode><current_mig>Disabled</current_mig></mig_mode>
  <uuid>GPU-529b3263-c96d-b557-bc75-697f04917eda</uuid>
  <gpu_recovery_action>Reset</gpu_recovery_action>
  <gsp_firmware_version>575.51.02</gsp_firmware_version>
  <clocks_event_reasons>
    <clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
    <clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>
    <clocks_event_reason_display_clocks_setting>Active</clocks_event_reason_display_clocks_setting>
  </clocks_event_reasons>
  <utilization><gpu_util>98 %</gpu_util><memory_util>40 %</memory_util></utilization>
  <ecc_errors>
    <volatile>
      <sram_uncorrectable_parity>1</sram_uncorrectable_parity>
      <sram_uncorrectable_secded>0</sram_uncorrectable_secded>
      <dram_uncorrectable>2</dram_uncorrectable>
    </volatile>
    <aggregate>
      <dram_uncorrectable>N/A</dram_uncorrectable>
      <sram_threshold_exceeded>Yes</sram_threshold_exceeded>
    </aggregate>
  </ecc_errors>
  <retired_pages>
    <multiple_single_bit_retirement><retired_count>60</retired_count></multiple_single_bit_retirement>
    <double_bit_retirement><retired_count>3</retired_count></double_bit_retirement>
    <pending_retirement>No</pending_retirement>
  </retired_pages>
  <remapped_rows>
    <remapped_row_corr>0</remapped_row_corr>
    <remapped_row_unc>8</remapped_row_unc>
    <remapped_row_pending>Yes</remapped_row_pending>
    <remapped_row_failure>No</remapped_row_failure>
  </remapped_rows>
  <temperature><gpu_temp>41 C</gpu_temp></temperature>
  <gpu_power_readings><instant_power_draw>111.26 W</instant_power_draw></gpu_power_readings>
  <clocks><sm_clock>345 MHz</sm_clock><mem_clock>2619 MHz</mem_clock></clocks>
  <max_clocks><sm_clock>1980 MHz</sm_clock></max_clocks>
  <fabric><state>In Progress</state><status>N/A</status></fabric>
  <processes>
    <process_info><pid>77</pid><type>G</type><process_name>Xorg</process_name></process_info>
    <process_info><pid>19</pid><type>C</type><process_name>python</process_name></process_info>
  </processes>
</gpu>"""
LOG = (
    '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
    "<nvidia_smi_log><driver_version>575.51.02</driver_version>"
    "<cuda_version>12.9</cuda_version><attached_gpus>1</attached_gpus>%s</nvidia_smi_log>"
)


def program(folder: Path, body: str) -> str:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_every_figure_has_its_place() -> None:
    found = parse_smi(LOG % GPU)
    assert found is not None
    assert (found.driver, found.cuda) == ("575.51.02", "12.9")
    (gpu,) = found.gpus
    assert (gpu.pci, gpu.name, gpu.mig, gpu.lost) == (
        *("0000:9b:00", "NVIDIA H100 80GB HBM3"),
        *(False, False),
    )
    assert (gpu.recovery, gpu.gsp, gpu.fabric) == ("gpu_reset", "575.51.02", "in_progress")
    assert gpu.throttle == ("hw_thermal_slowdown", "display_clock_setting")
    assert (gpu.utilisation, gpu.memory_utilisation, gpu.temperature_c) == (98, 40, 41)
    assert (gpu.sm_clock_mhz, gpu.sm_clock_max_mhz, gpu.power_w) == (345, 1980, 111.26)
    assert (gpu.ecc_uncorrected_volatile, gpu.ecc_uncorrected_aggregate) == (3, None)
    assert (gpu.retired_pages, gpu.retired_pages_total, gpu.retirement_pending) == (3, 63, False)
    assert (gpu.sram_threshold_exceeded, gpu.remap_pending, gpu.remap_failed) == (True, True, False)
    assert gpu.processes == (Process(19),)


@pytest.mark.parametrize("text", ["", "Fri Nov 21", "<nvidia_smi_log><gpu>", LOG[:90]])
def test_what_is_no_whole_document_is_none(text: str) -> None:
    assert parse_smi(text) is None


def test_the_program_is_asked(tmp_path: Path) -> None:
    (tmp_path / "log.xml").write_text(LOG % (GPU + GPU.replace("9B", "9C")))
    answer = ask_nvidia_smi(program(tmp_path, f"cat {tmp_path}/log.xml"))
    assert answer.said is None
    assert answer.snapshot is not None
    assert [gpu.pci for gpu in answer.snapshot.gpus] == ["0000:9b:00", "0000:9c:00"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo NVML is out; exit 9", "NVML is out"),
        ("echo NVML is out >&2; exit 9", "NVML is out"),
        ("exit 9", "ended with status 9"),
        (f"echo '{LOG % ''}'", "No devices were found"),
    ],
)
def test_a_failure_is_told_in_its_own_words(tmp_path: Path, body: str, said: str) -> None:
    answer = ask_nvidia_smi(program(tmp_path, body))
    assert answer.snapshot is None
    assert said in (answer.said or "")


def test_a_machine_without_the_program_says_nothing(tmp_path: Path) -> None:
    assert ask_nvidia_smi(str(tmp_path / "nvidia-smi")) == (None, None)
