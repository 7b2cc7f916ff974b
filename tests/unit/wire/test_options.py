"""What a person may have meant who wrote an unknown option."""

import pytest

from kernelcast.probe.command import main
from kernelcast.wire.options import OptionParser


def test_an_unknown_option_of_the_probe_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--standlone", "--", "python", "train.py"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("unrecognized arguments: --standlone; did you mean --standalone?\n")


def test_an_option_with_a_value_is_compared_without_it_and_a_distant_one_names_none() -> None:
    parser = OptionParser("tool")
    parser.add_argument("--interval")
    assert parser.remedy("unrecognized arguments: --intervall=3") == "; did you mean --interval?"
    assert parser.remedy("unrecognized arguments: --xyz") == ""
    assert parser.remedy("unrecognized arguments: train.py") == ""
    assert parser.remedy("the following arguments are required: --interval") == ""
