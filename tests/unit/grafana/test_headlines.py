"""The fleet row names the kernel with the most work, not a wait for other GPUs."""

from kernelcast.grafana.dashboards import headlines


def test_the_hottest_kernel_is_never_a_collective() -> None:
    (expr,) = {each["expr"] for each in headlines.hottest().panel.targets}
    share, _, whole = expr.partition("/ scalar(")
    assert share.count('kernel_class!="collective"') == 3
    assert "collective" not in whole.partition('"name",')[0]
