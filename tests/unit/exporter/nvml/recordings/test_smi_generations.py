"""The words of nvidia-smi's generations, from driver 410 (2018) to 610 (2026), and its three answers without a value.

Sections marked MIT are from utkuozdemir/nvidia_gpu_exporter, `internal/captures`; those marked Apache-2.0 from
thamada/gls, `gls/*_smi.py`; shortened. The others have the words of their driver, and values of ours.

The shapes of what people write into issues, notebooks and reports are from NVIDIA/nvidia-docker#464 (375: no name),
leptonai/gpud (535: fabric in two lines), NVIDIA/gpu-operator#220 and #628 (licences) and public notes (`-d` sections,
GPU lists after the output, a GPU to reset).
"""

import codecs
import gzip
from pathlib import Path

import pynvml
import pytest
from typer.testing import CliRunner

from kernelcast.exporter.nvml.recorded import RecordedNvml
from kernelcast.exporter.nvml.recordings.nvidia_smi import read_capture
from kernelcast.exporter.nvml.sampling.fields import ROWS
from kernelcast.exporter.nvml.sampling.reading import GpuReading, NodeReading
from kernelcast.exporter.nvml.sampling.sampler import Sampler, SamplerOptions
from kernelcast.exporter.replay.command import replay
from kernelcast.wire.errors import TraceError

HEAD = """
==============NVSMI LOG==============

Timestamp                                 : Tue Nov 24 10:00:00 2026
{versions}
Attached GPUs                             : 1
GPU 00000000:01:00.0
    Product Name                          : NVIDIA Test
    GPU UUID                              : GPU-1
"""
DRIVER_410 = """
    PCI
        Replays since reset         : 7
    Clocks Throttle Reasons
        Idle                        : Not Active
        SW Power Cap                : Active
        HW Slowdown                 : Active
            HW Thermal Slowdown     : Active
            HW Power Brake Slowdown : Not Active
    FB Memory Usage
        Total                       : 32480 MiB
        Used                        : 31194 MiB
        Free                        : 1286 MiB
    Utilization
        Gpu                         : 44 %
        Memory                      : 4 %
    ECC Errors
        Volatile
            Single Bit            
                Device Memory       : 2
                Texture Memory      : N/A
                Total               : 3
            Double Bit            
                Device Memory       : 0
                Total               : 0
        Aggregate
            Single Bit            
                Total               : 30
            Double Bit            
                Total               : 1
    Retired Pages
        Single Bit ECC              : 4
        Double Bit ECC              : 5
        Pending                     : Yes
    Power Readings
        Power Management            : Supported
        Power Draw                  : 58.81 W
        Power Limit                 : 250.00 W
        Default Power Limit         : 250.00 W
        Enforced Power Limit        : 200.00 W
    Processes
        Process ID                  : 315406
            Type                    : C
            Name                    : /usr/bin/python
            Used GPU Memory         : 31181 MiB
"""  # noqa: W291  as nvidia-smi prints it
DRIVER_450 = """
    Clocks Throttle Reasons
        Idle                              : Active
        SW Power Cap                      : Not Active
    ECC Errors
        Volatile
            SRAM Correctable              : 1
            SRAM Uncorrectable            : N/A
            DRAM Correctable              : 2
            DRAM Uncorrectable            : N/A
    Remapped Rows                         : N/A
    Power Readings
        Power Draw                        : 4.93 W
        Power Limit                       : 175.00 W
        Enforced Power Limit              : 175.00 W
"""
# Apache-2.0: GH200_smi.py, driver 550.127.05
GH200 = """
    Utilization
        Gpu                               : 0 %
        Memory                            : 0 %
    Temperature
        GPU Current Temp                  : 31 C
        GPU T.Limit Temp                  : 55 C
        GPU Slowdown T.Limit Temp         : -2 C
        Memory Current Temp               : 39 C
    GPU Power Readings
        Power Draw                        : 87.88 W
        Current Power Limit               : 700.00 W
        Requested Power Limit             : 900.00 W
    GPU Memory Power Readings 
        Power Draw                        : 18.51 W
    Module Power Readings
        Power Draw                        : 169.77 W
        Current Power Limit               : 1000.00 W
"""  # noqa: W291  as nvidia-smi prints it
# MIT: linux-x86_64__nvidia-geforce-rtx-2080-super__595.71.05.txt
DRIVER_595 = """
    GPU Power Readings
        Average Power Draw                             : N/A
        Instantaneous Power Draw                       : 37.62 W
        Current Power Limit                            : 250.00 W
"""
# MIT: linux-x86_64__nvidia-geforce-rtx-2080-super__610.57.04.txt
DRIVER_610 = """
    GPU Power Readings
        Average Power Draw                             : N/A
        Instantaneous Power Draw                       : 38.89 W
        GPU Ceiling Power Limit
            Current Power Limit                        : 250.00 W
            Requested Power Limit                      : 250.00 W
        GPU Base Power
            Current Base Power                         : N/A
    Module Power Readings
        Average Power Draw                             : N/A
        Current Power Limit                            : N/A
    Clocks
        SM                                             : 300 MHz
        Memory                                         : 405 MHz
"""
VERSIONS_610 = """\
Driver Version                                         : 610.57.04 [Deprecated; will be removed in CUDA 14.0. Use KMD Version instead]
CUDA Version                                           : 13.3 [Deprecated; will be removed in CUDA 14.0. Use CUDA UMD Version instead]
KMD Version                                            : 610.57.04
CUDA UMD Version                                       : 13.3"""  # noqa: E501  as nvidia-smi prints it


def read(path: Path, sections: str = "", versions: str = "Driver Version : 580.95.05") -> NodeReading:
    path.write_text(HEAD.format(versions=versions) + sections)
    return played(path)


def played(path: Path) -> NodeReading:
    sampler = Sampler(RecordedNvml(read_capture(path), clock=lambda: 0), SamplerOptions(rows=tuple(ROWS))).start()
    reading = sampler.sample(1_000_000_000_000)
    sampler.close()
    return reading


def gpu_of(tmp_path: Path, sections: str) -> GpuReading:
    return read(tmp_path / "smi.txt", sections).gpus[0]


def rows(gpu: GpuReading) -> dict[str, float]:
    return {name.removeprefix("DCGM_FI_DEV_"): value for name, value in gpu.values.items()}


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        (
            DRIVER_410,
            {
                "PCIE_REPLAY_COUNTER": 7,
                "CLOCKS_EVENT_REASONS": 0x4C,
                "FB_USED": 31194,
                "FB_FREE": 1286,
                "GPU_UTIL": 44,
                "MEM_COPY_UTIL": 4,
                "ECC_SBE_VOL_TOTAL": 3,
                "ECC_DBE_VOL_TOTAL": 0,
                "ECC_SBE_AGG_TOTAL": 30,
                "ECC_DBE_AGG_TOTAL": 1,
                "RETIRED_SBE": 4,
                "RETIRED_DBE": 5,
                "RETIRED_PENDING": 1,
                "POWER_USAGE": 58.81,
                "POWER_MGMT_LIMIT": 200,
            },
        ),
        (
            DRIVER_450,
            {"CLOCKS_EVENT_REASONS": 1, "ECC_SBE_VOL_TOTAL": 3, "POWER_USAGE": 4.93, "POWER_MGMT_LIMIT": 175},
        ),
        (
            GH200,
            {
                "GPU_UTIL": 0,
                "MEM_COPY_UTIL": 0,
                "GPU_TEMP": 31,
                "MEMORY_TEMP": 39,
                "POWER_USAGE": 87.88,
                "POWER_MGMT_LIMIT": 700,
            },
        ),
        (DRIVER_595, {"POWER_USAGE": 37.62, "POWER_MGMT_LIMIT": 250}),
        (DRIVER_610, {"POWER_USAGE": 38.89, "POWER_MGMT_LIMIT": 250, "SM_CLOCK": 300, "MEM_CLOCK": 405}),
    ],
    ids=["410", "450", "550 on GH200", "595", "610"],
)
def test_each_generations_words_give_the_values_that_they_show(
    sections: str, expected: dict[str, float], tmp_path: Path
) -> None:
    assert rows(gpu_of(tmp_path, sections)) == expected


@pytest.mark.parametrize(
    "versions",
    [VERSIONS_610, "KMD Version : 610.57.04", VERSIONS_610.rpartition("KMD")[0], "Driver Version : 610.57.04"],
)
def test_the_drivers_version_is_the_number_alone(versions: str, tmp_path: Path) -> None:
    assert read(tmp_path / "smi.txt", versions=versions).driver_version == "610.57.04"


def test_a_deprecation_sentence_after_any_value_does_not_hide_it(tmp_path: Path) -> None:
    said = DRIVER_610.replace("250.00 W", "250.00 W [Deprecated; will be removed in CUDA 14.0]").replace(
        "300 MHz", "300 MHz [deprecated]"
    )
    assert rows(gpu_of(tmp_path, said)) == rows(gpu_of(tmp_path, DRIVER_610))


def test_a_process_of_a_driver_without_mig_is_one_of_the_gpu(tmp_path: Path) -> None:
    (process,) = gpu_of(tmp_path, DRIVER_410).processes
    assert (process.pid, process.memory_bytes, process.name) == (315406, 31181 * 2**20, "python")


def test_a_process_of_windows_is_named_without_its_folder(tmp_path: Path) -> None:
    text = DRIVER_410.replace("/usr/bin/python", r"C:\Windows\explorer.exe").replace("31181 MiB", "N/A")
    (process,) = gpu_of(tmp_path, text).processes
    assert (process.name, process.memory_bytes) == ("explorer.exe", None)


def test_memory_that_an_old_driver_does_not_print_is_absent_and_not_zero(tmp_path: Path) -> None:
    assert gpu_of(tmp_path, DRIVER_410).absent["DCGM_FI_DEV_FB_RESERVED"] == "not_supported"


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("N/A", "not_supported"),
        ("[N/A]", "not_supported"),
        ("Not Supported", "not_supported"),
        ("[Not Supported]", "not_supported"),
        ("Requested functionality has been deprecated", "not_supported"),
        ("[Insufficient Permissions]", "no_permission"),
        ("Not Found", "no_data"),
        ("words of a driver to come", "no_data"),
        ("38 furlongs", "no_data"),
        ("ERR!", "error"),
        ("Unknown Error", "error"),
        ("[Unknown Error]", "error"),
        ("[GPU is lost]", "error"),
        ("[GPU requires reset]", "error"),
        ("GPU requires restart", "error"),
        ("System is not in ready state", "error"),
        ("GPU is lost", "error"),
    ],
)
@pytest.mark.parametrize(
    ("row", "sections"),
    [
        ("FAN_SPEED", "    Fan Speed : {}\n    Performance State : P0\n"),
        ("POWER_USAGE", "    Power Readings\n        Power Draw : {}\n        Enforced Power Limit : 70.00 W\n"),
        ("GPU_TEMP", "    Temperature\n        GPU Current Temp : {}\n        Memory Current Temp : 40 C\n"),
        ("FB_USED", "    Fan Speed : 30 %\n    FB Memory Usage\n        Total : 5 MiB\n        Used : {}\n"),
        ("PSTATE", "    Fan Speed : 30 %\n    Performance State : {}\n"),
        ("RETIRED_PENDING", "    Fan Speed : 30 %\n    Retired Pages\n        Pending Page Blacklist : {}\n"),
        (
            "ECC_SBE_VOL_TOTAL",
            "    Fan Speed : 3 %\n    ECC Errors\n        Volatile\n            DRAM Correctable : {}\n",
        ),
        ("CORRECTABLE_REMAPPED_ROWS", "    Fan Speed : 3 %\n    Remapped Rows : {}\n"),
        ("CLOCKS_EVENT_REASONS", "    Fan Speed : 3 %\n    Clocks Event Reasons : {}\n"),
    ],
)
def test_a_text_in_place_of_a_value_is_the_reason(
    row: str, sections: str, printed: str, reason: str, tmp_path: Path
) -> None:
    gpu = gpu_of(tmp_path, sections.format(printed))
    assert gpu.absent[f"DCGM_FI_DEV_{row}"] == reason
    assert gpu.values


def test_a_line_that_the_output_lacks_is_not_said_to_be_unsupported(tmp_path: Path) -> None:
    absent = gpu_of(tmp_path, "    Fan Speed : 30 %\n").absent
    assert {reason for row, reason in absent.items() if row != "DCGM_FI_DEV_XID_ERRORS"} == {"no_data"}


def test_an_error_of_the_average_power_is_not_replaced_by_another_reading(tmp_path: Path) -> None:
    gpu = gpu_of(tmp_path, DRIVER_595.replace("N/A", "[Unknown Error]"))
    assert gpu.absent["DCGM_FI_DEV_POWER_USAGE"] == "error"


def test_a_gpu_of_which_nothing_else_can_be_read_is_lost(tmp_path: Path) -> None:
    gpu = gpu_of(tmp_path, "    Fan Speed : GPU is lost\n    Performance State : GPU is lost\n")
    assert set(gpu.absent.values()) == {"lost"}


def test_a_capture_that_powershell_wrote_is_read(tmp_path: Path) -> None:
    path = tmp_path / "smi.txt"
    text = HEAD.format(versions="Driver Version : 610.62") + DRIVER_595
    path.write_bytes(codecs.BOM_UTF16_LE + text.replace("\n", "\r\n").encode("utf-16-le"))
    assert rows(played(path).gpus[0]) == {"POWER_USAGE": 37.62, "POWER_MGMT_LIMIT": 250}


def test_a_driver_before_535_gives_the_clock_reasons_by_the_older_call(tmp_path: Path) -> None:
    def lacks() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    path = tmp_path / "smi.txt"
    read(path, DRIVER_410)
    nvml = RecordedNvml(read_capture(path), clock=lambda: 0)
    nvml.inject("nvmlDeviceGetCurrentClocksEventReasons", lacks)
    sampler = Sampler(nvml, SamplerOptions(rows=tuple(ROWS))).start()
    nvml.answers["0"]["nvmlDeviceGetCurrentClocksThrottleReasons"] = 0x8
    assert rows(sampler.sample(10**12).gpus[0])["CLOCKS_EVENT_REASONS"] == 0x8
    sampler.close()


SECTIONS_OF_TWO = """
==============NVSMI LOG==============

Timestamp                                 : Thu Jun 13 17:51:27 2024
Driver Version                            : 555.42.02
CUDA Version                              : 12.5

Attached GPUs                             : 2
GPU 00000000:12:00.0
    Temperature
        GPU Current Temp                  : 33 C
    ECC Errors
        Unrepairable Memory               : No

GPU 00000000:13:00.0
    Temperature
        GPU Current Temp                  : 44 C
    ECC Errors
        Unrepairable Memory               : Yes
"""
GPU_LISTS = """
# nvidia-smi nvlink --status
GPU 0: NVIDIA A100-PCIE-40GB (UUID: GPU-3fb142e7-7102-c7ac-bd5a-fc829e11ed84)
         Link 0: 26.562 GB/s
GPU 1: NVIDIA A100-PCIE-40GB (UUID: GPU-14ac2834-0d81-0508-69eb-e25264c08d21)
# nvidia-smi vgpu -q
GPU 00000000:12:00.0
    Active vGPUs                          : 1
    Temperature
        GPU Current Temp                  : 99 C
"""


def of_text(tmp_path: Path, text: str) -> tuple[GpuReading, ...]:
    path = tmp_path / "notes.md"
    path.write_text(text)
    return played(path).gpus


@pytest.mark.parametrize("prefix", ["    ", "\t\t", "> ", ">     "], ids=["indented", "tabs", "quoted", "both"])
def test_an_output_that_was_indented_or_quoted_is_read_as_the_bare_one(prefix: str, tmp_path: Path) -> None:
    bare = HEAD.format(versions="Driver Version : 410.72") + DRIVER_410.replace("    Utilization", "\n    Utilization")
    moved = "".join(f"{prefix}{line}".rstrip() + "\n" for line in bare.splitlines())
    notes = f"```python\n!nvidia-smi -q\n```\n{moved}\nThe card was idle.\n"
    (gpu,) = of_text(tmp_path, notes)
    (expected,) = of_text(tmp_path, bare)
    assert (gpu.values, gpu.absent, gpu.processes) == (expected.values, expected.absent, expected.processes)
    assert "DCGM_FI_DEV_GPU_UTIL" in gpu.values


def test_gpus_that_other_commands_list_after_the_output_are_not_further_gpus(tmp_path: Path) -> None:
    found = of_text(tmp_path, SECTIONS_OF_TWO + GPU_LISTS)
    assert [(gpu.index, gpu.values["DCGM_FI_DEV_GPU_TEMP"]) for gpu in found] == [("0", 33), ("1", 44)]


def test_gpus_without_a_uuid_are_told_apart_by_the_address_of_their_heading(tmp_path: Path) -> None:
    first, second = of_text(tmp_path, SECTIONS_OF_TWO)
    assert (first.pci_bus_id, second.pci_bus_id) == ("00000000:12:00.0", "00000000:13:00.0")
    assert (first.uuid, second.uuid) == (first.pci_bus_id, second.pci_bus_id)
    assert ([one.value for one in first.health], [one.value for one in second.health]) == ([0], [1])


@pytest.mark.parametrize("text", ["Unknown Error", "[GPU is lost]", "N/A"])
def test_an_error_in_place_of_the_name_or_uuid_is_neither(text: str, tmp_path: Path) -> None:
    head = HEAD.format(versions="Driver Version : 375.26").replace("NVIDIA Test", text).replace("GPU-1", text)
    (gpu,) = of_text(tmp_path, head + DRIVER_410)
    assert (gpu.model_name, gpu.uuid) == ("", "00000000:01:00.0")


def test_a_fabric_of_which_only_state_and_status_are_shown_has_these(tmp_path: Path) -> None:
    gpu = gpu_of(tmp_path, "    Fabric\n        State : In Progress\n        Status : Success\n")
    (fabric,) = gpu.health
    assert (fabric.labels["state"], fabric.labels["status"]) == ("in_progress", "success")


def test_the_temperature_of_a_driver_before_340_is_read(tmp_path: Path) -> None:
    assert rows(gpu_of(tmp_path, "    Temperature\n        Gpu                     : 62 C\n")) == {"GPU_TEMP": 62}


def test_a_process_whose_arguments_are_printed_is_named_by_its_program(tmp_path: Path) -> None:
    shown = "/opt/google/chrome/chrome --type=gpu-process --gpu-preferences=WAAA/AAA= --shared-files"
    (process,) = gpu_of(tmp_path, DRIVER_410.replace("/usr/bin/python", shown)).processes
    assert process.name == "chrome"


@pytest.mark.parametrize(
    "text",
    ['<?xml version="1.0" ?>\n<nvidia_smi_log>\n<gpu id="00000000:84:00.0">\n', "index, temperature.gpu\n0, 38\n"],
    ids=["XML", "CSV"],
)
def test_what_another_option_printed_is_refused_with_the_command_to_use(text: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"`nvidia-smi -q > \S+` \(without -x and --query-gpu\)"):
        of_text(tmp_path, text)


def test_a_capture_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (first, _) = of_text(tmp_path, "\ufeff" + SECTIONS_OF_TWO.lstrip())
    assert rows(first) == {"GPU_TEMP": 33}


@pytest.mark.parametrize(
    "kept", ["GPU 00000000:13:00.0", "GPU 00000000:13:00.0\n    Temp", "GPU 00000000:13:00.0\n    Temperature"]
)
def test_a_last_output_that_a_stopped_loop_cut_is_left_out(kept: str, tmp_path: Path) -> None:
    path = tmp_path / "loop.txt"
    later = SECTIONS_OF_TWO.replace("17:51:27", "17:51:28")
    path.write_text(SECTIONS_OF_TWO + later[: later.index(kept) + len(kept)])
    recording = read_capture(path)
    assert len(recording.moments) == 1
    assert recording.note == "its last output is cut, and left out"


def test_a_last_output_without_a_gpu_that_others_follow_is_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "loop.txt"
    first, second = SECTIONS_OF_TWO.split("\nGPU 00000000:13:00.0")
    path.write_text(SECTIONS_OF_TWO + first[: first.index("GPU 00000000:12:00.0")] + "GPU 00000000:13:00.0" + second)
    recording = read_capture(path)
    assert len(recording.moments) == 2
    assert recording.moments[1].changed[""]["nvmlDeviceGetCount"] == 1


def test_a_last_output_of_other_sections_is_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "sections.txt"
    head, _ = SECTIONS_OF_TWO.split("GPU 00000000:12:00.0")
    clocks = head + "GPU 00000000:12:00.0\n    Clocks\n        SM : 300 MHz\n"
    path.write_text(SECTIONS_OF_TWO + clocks)
    recording = read_capture(path)
    assert len(recording.moments) == 2
    assert recording.moments[1].changed["0"][f"nvmlDeviceGetClockInfo:{pynvml.NVML_CLOCK_SM}"] == 300


def test_a_capture_of_some_of_the_gpus_says_so(tmp_path: Path) -> None:
    path = tmp_path / "smi.txt"
    path.write_text(SECTIONS_OF_TWO[: SECTIONS_OF_TWO.index("\nGPU 00000000:13:00.0")])
    done = CliRunner().invoke(replay, ["capture", str(path), "--output", str(tmp_path / "node.jsonl")])
    assert done.output.replace("\n", " ").strip().endswith("1 moments; it shows 1 of 2 GPUs")


@pytest.mark.parametrize(
    ("section", "status", "licensed"),
    [
        ("vGPU Software Licensed Product", "Licensed", 1),
        ("vGPU Software Licensed Product", "Licensed (Expiry: 2023-1-31 11:32:22 GMT)", 1),
        ("vGPU Software Licensed Product", "Unlicensed", 0),
        ("vGPU Software Licensed Product", "Unlicensed (Restricted)", 0),
        ("GRID Licensed Product", "Licensed", 1),
        ("vGPU Software Licensed Product", "N/A (Expiry: N/A)", None),
        ("vGPU Software Licensed Product", "Unknown Error", None),
    ],
)
def test_a_guests_licence_is_read(section: str, status: str, licensed: int | None, tmp_path: Path) -> None:
    gpu = gpu_of(tmp_path, f"    {section}\n        Product Name : A product\n        License Status : {status}\n")
    assert gpu.values.get("DCGM_FI_DEV_VGPU_LICENSE_STATUS") == licensed
    assert gpu.model_name == "NVIDIA Test"


def test_the_licensed_product_is_not_the_name_of_a_gpu_that_shows_none(tmp_path: Path) -> None:
    licence = "    vGPU Software Licensed Product\n        Product Name : A product\n"
    (gpu,) = of_text(tmp_path, HEAD.replace("    Product Name                          : NVIDIA Test\n", "") + licence)
    assert gpu.model_name == ""


@pytest.mark.parametrize("pid", ["", ": ", ": <redacted>", ": [Not Found]"])
def test_a_process_whose_number_is_cut_or_redacted_is_left_out_and_the_rest_is_read(pid: str, tmp_path: Path) -> None:
    gpu = gpu_of(tmp_path, f"{DRIVER_410}        Process ID                  {pid}")
    assert [process.pid for process in gpu.processes] == [315406]
    assert rows(gpu)["POWER_USAGE"] == 58.81


def test_a_capture_within_a_compressed_bug_report_is_read(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-bug-report.log.gz"
    rule = "_" * 44
    path.write_bytes(
        gzip.compress(f"{rule}\n\n/usr/bin/nvidia-smi --query\n\n{SECTIONS_OF_TWO}\n{rule}\n{GPU_LISTS}".encode())
    )
    assert [gpu.values["DCGM_FI_DEV_GPU_TEMP"] for gpu in played(path).gpus] == [33, 44]


@pytest.mark.parametrize("damage", [slice(2, 40), slice(4, None)])
def test_a_capture_whose_gzip_is_damaged_is_refused_with_a_sentence(damage: slice, tmp_path: Path) -> None:
    path = tmp_path / "smi.txt.gz"
    path.write_bytes(b"\x1f\x8b" + gzip.compress(SECTIONS_OF_TWO.encode())[damage])
    with pytest.raises(TraceError, match="cannot be read"):
        read_capture(path)
