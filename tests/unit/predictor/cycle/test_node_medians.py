"""Medians over the GPUs of a node, as a cycle reads them for the detector."""

import numpy as np
from tests.unit.predictor.conftest import Fleet, device_subject

TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
SLOWDOWN = "DCGM_FI_DEV_SLOWDOWN_TEMP"


def test_a_series_is_read_with_the_median_of_its_metric_on_its_node(fleet: Fleet) -> None:
    for host, gpus in (("large", 5), ("small", 3), ("", 4)):
        for gpu in range(gpus):
            fleet.device(TEMPERATURE, lambda second, gpu=gpu: 60.0 + gpu + second // 100, gpu=f"{host}{gpu}", host=host)  # type: ignore[misc]
            fleet.device(SLOWDOWN, lambda _: 90.0, gpu=f"{host}{gpu}", host=host)
    fleet.run(240)
    source = fleet.cycle._source

    def node(host: str, *gpus: int) -> list[list[float]]:
        subjects = [device_subject(TEMPERATURE, gpu=f"{host}{gpu}", host=host) for gpu in gpus]
        rows = np.array([fleet.windows.row(one) for one in subjects])
        newest = source.common_block(fleet.windows.newest[rows])
        found = source.blocks(rows, newest, known_versions=np.zeros(len(rows), np.bool_)).node
        return [sorted(set(row[np.isfinite(row)].tolist())) for row in found]

    assert node("large", 0, 1, 2, 3, 4) == [[62.0, 63.0, 64.0]] * 5
    assert node("large", 4, 0) == [[62.0, 63.0, 64.0]] * 2, "rows that are evaluated at another time count, too"
    assert node("small", 0, 1, 2) == [[]] * 3
    assert node("", 0, 1, 2, 3) == [[]] * 4, "GPUs without a host have no node"
