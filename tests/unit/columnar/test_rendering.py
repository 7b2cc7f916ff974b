import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from kernelcast.columnar.decoding.rendering import as_text


def array(*values: AnyValue) -> AnyValue:
    return AnyValue(array_value=ArrayValue(values=values))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (AnyValue(string_value='a "b"'), 'a "b"'),
        (AnyValue(string_value=""), ""),
        (AnyValue(), ""),
        (AnyValue(bool_value=False), "false"),
        (AnyValue(int_value=-(2**63)), "-9223372036854775808"),
        (AnyValue(double_value=1.0), "1"),
        (AnyValue(double_value=0.1), "0.1"),
        (AnyValue(double_value=-0.0), "-0"),
        (AnyValue(double_value=123456789012345680.0), "123456789012345680"),
        (AnyValue(double_value=1e20), "100000000000000000000"),
        (AnyValue(double_value=1e21), "1e+21"),
        (AnyValue(double_value=1e-6), "0.000001"),
        (AnyValue(double_value=1.5e-7), "1.5e-7"),
        (AnyValue(double_value=float("nan")), "NaN"),
        (AnyValue(double_value=float("-inf")), "-Inf"),
        (AnyValue(bytes_value=b"\x00\xff"), "AP8="),
        (array(AnyValue(int_value=1), AnyValue(string_value="ä"), AnyValue(), array()), '[1,"ä",null,[]]'),
        (  # Go's JSON escapes what HTML and JavaScript would misread
            array(AnyValue(string_value="a && b > <c>"), AnyValue(string_value="\u2028\u2029")),
            r'["a \u0026\u0026 b \u003e \u003cc\u003e","\u2028\u2029"]',
        ),
        (
            AnyValue(
                kvlist_value=KeyValueList(
                    values=[
                        KeyValue(key="b", value=AnyValue(double_value=2.0)),
                        KeyValue(key="a", value=AnyValue(bytes_value=b"x")),
                        KeyValue(key="b", value=AnyValue(bool_value=True)),
                    ]
                )
            ),
            '{"a":"eA==","b":true}',
        ),
    ],
)
def test_attribute_values_become_the_text_that_the_prometheus_translation_writes(value: AnyValue, text: str) -> None:
    assert as_text(value) == text
