from importlib import import_module

import pytest

from kernelcast import columnar


@pytest.mark.parametrize("name", columnar.__all__)
def test_every_public_name_is_found_in_its_module(name: str) -> None:
    module = import_module(f"kernelcast.columnar.{columnar._MODULES[name]}")
    assert getattr(columnar, name) is getattr(module, name)
    assert name in dir(columnar)


def test_every_home_is_of_a_public_name() -> None:
    assert set(columnar._MODULES) == set(columnar.__all__)


def test_an_unknown_name_is_the_error_that_python_gives() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'decode'"):
        columnar.decode  # noqa: B018
