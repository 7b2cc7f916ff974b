"""The invariants are shown to fail where defects are put back that the bridge once had."""

import pytest
from tests.faults.model.defects import DEFECTS, FINDS
from tests.faults.model.examples import EXAMPLES


@pytest.mark.parametrize("name", list(DEFECTS))
def test_a_defect_that_is_put_back_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    DEFECTS[name](monkeypatch)
    assert EXAMPLES[name].finding()[1].startswith(FINDS[name])
