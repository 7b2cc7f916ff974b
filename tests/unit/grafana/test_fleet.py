"""The fleet row names the kernel with the most work, not a wait for other GPUs."""

from kernelcast.grafana.dashboards import fleet


def test_the_hottest_kernel_is_never_a_collective() -> None:
    (panel,) = (one.panel for one in fleet.row().panels if one.panel.title == "Hottest kernel")
    (expr,) = {each["expr"] for each in panel.targets}
    share, _, whole = expr.partition("/ scalar(")
    assert share.count('kernel_class!="collective"') == 3
    assert "collective" not in whole.partition('"kernel",')[0]
