import pytest

from kernelcast.probe.settings import program_name, settings_from


def test_arguments_go_before_the_environment() -> None:
    settings = settings_from("mine", 3, {"KERNELCAST_PROGRAM": "other", "KERNELCAST_RANK": "9"})
    assert (settings.program, settings.rank) == ("mine", "3")


@pytest.mark.parametrize("name", ["KERNELCAST_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"])
def test_the_rank_is_found_where_launchers_put_it(name: str) -> None:
    assert settings_from("p", None, {name: "5"}).rank == "5"


def test_everything_has_a_default() -> None:
    settings = settings_from(None, None, {})
    assert (settings.program, settings.rank) == ("program", "")
    assert (settings.socket_path, settings.interval_seconds) == ("/run/kernelcast/probe.sock", 1.0)


@pytest.mark.parametrize(
    ("argument", "module", "name"),
    [
        ("train.py", "", "train"),
        ("/a/b/train.py", "", "train"),
        ("/a/bin/torchtune", "", "torchtune"),
        ("/a/pkg/__main__.py", "pkg.__main__", "pkg"),
        ("/a/pkg/sub/train.py", "pkg.sub.train", "pkg.sub.train"),
        ("/a/job/__main__.py", "__main__", "job"),
        ("-c", "", "python -c"),
        ("-", "", "python"),
        ("", "", "python"),
    ],
    ids=["script", "path", "entry point", "package", "module", "folder", "command line", "pipe", "prompt"],
)
def test_a_program_that_gives_no_name_is_called_as_what_python_was_told_to_run(
    argument: str, module: str, name: str
) -> None:
    assert program_name([argument], module) == name
    assert settings_from(None, None, {}, program_name([argument], module)).program == name


@pytest.mark.parametrize(("given", "taken"), [("0.5", 0.5), ("soon", 1.0), ("0", 0.02), ("-3", 0.02), ("nan", 0.02)])
def test_no_interval_stops_a_program(given: str, taken: float) -> None:
    assert settings_from("p", None, {"KERNELCAST_PROBE_INTERVAL_SECONDS": given}).interval_seconds == taken


@pytest.mark.parametrize(
    ("given", "taken"), [("a\nb", "ab"), ("x" * 500, "x" * 128), ("\n", "program"), ("a\udcff", "a?")]
)
def test_no_program_name_stops_a_program(given: str, taken: str) -> None:
    assert settings_from(given, None, {}).program == taken


def test_bytes_of_the_environment_that_are_no_text_stop_no_program() -> None:
    settings = settings_from("p", None, {"RANK": "\udcff", "KERNELCAST_CODE_VERSION": "\udcff" + "1" * 500})
    assert settings.rank == "?"
    assert settings.code_version == "?" + "1" * 127


@pytest.mark.parametrize(
    ("environ", "image"),
    [
        ({"KERNELCAST_IMAGE": "app:2", "APPTAINER_CONTAINER": "/images/app.sif"}, "app:2"),
        ({"APPTAINER_CONTAINER": "/images/app.sif"}, "/images/app.sif"),
        ({"KERNELCAST_IMAGE": "x" * 300 + "@sha256:1"}, "x" * 191 + "@sha256:1"),
        ({}, ""),
    ],
)
def test_the_image_comes_from_the_environment(environ: dict[str, str], image: str) -> None:
    assert settings_from("p", None, environ).image == image
