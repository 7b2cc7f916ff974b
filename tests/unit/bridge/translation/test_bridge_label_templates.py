"""Labels from a template, compared with labels rendered one by one."""

from hypothesis import example, given
from hypothesis import strategies as st

from kernelcast.bridge.translation.attributes import LONGEST_LABELS_BYTES, LabelRenderer

KEYS = st.sampled_from(("gpu", "host.name", "host_name", "pod", "job", "le", "1st", "%s", "exported_job", "é"))
VALUES = st.sampled_from(("", "0", "node-1", 'a "b"', "a\\b", "a\nb", "%s", "100 %", "ü"))
ATTRIBUTES = st.dictionaries(KEYS, VALUES, max_size=6).map(lambda some: tuple(sorted(some.items())))
LABELS = st.dictionaries(
    st.sampled_from(("job", "instance", "le", "pod", "exported_le")), st.sampled_from(("x", 'y"', "%s")), max_size=3
)


@given(st.lists(ATTRIBUTES, min_size=1, max_size=4), LABELS, LABELS, st.sampled_from(((), ("le",))))
@example([(("gpu", "0"),)], {}, {}, ())
@example([()], {}, {}, ())
def test_labels_from_a_template_are_those_that_are_rendered_one_by_one(
    series: list[tuple[tuple[str, str], ...]], fixed: dict[str, str], promoted: dict[str, str], own: tuple[str, ...]
) -> None:
    renderer = LabelRenderer(fixed, promoted, own, b"")
    assert [renderer(attributes) for attributes in series] == [renderer.one_by_one(one) for one in series]


def test_what_a_template_cannot_render_is_joined_left_out_or_escaped() -> None:
    renderer = LabelRenderer({"job": "bench"}, {"pod": "outer", "le": "outer"}, ("le",), b'quantile="0.5"')
    assert (
        renderer((("a.b", "1"), ("a_b", "2")))
        == b'a_b="1;2",exported_le="outer",job="bench",pod="outer",quantile="0.5"'
    )
    assert renderer((("gpu", ""), ("pod", 'p"'))) == b'exported_le="outer",job="bench",pod="p\\"",quantile="0.5"'
    assert renderer((("job", "1"), ("le", "2"))) == (
        b'exported_job="1",exported_le="2",job="bench",pod="outer",quantile="0.5"'
    )
    assert renderer((("pod", "p" * LONGEST_LABELS_BYTES),)) is None
    assert LabelRenderer({}, {}, (), b'quantile="0.5"')(()) == b'quantile="0.5"'
