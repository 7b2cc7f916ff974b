"""TensorFlow: a function of a product and an elementwise function; launches by the probe's records."""

from tests.gpu.day.programs.kernels import answer, cannot
from tests.gpu.day.programs.records import recorded

CALLS = 200


def main() -> None:
    """Call the function."""
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        cannot("TensorFlow finds no GPU that it can use")
    function = tf.function(lambda x: tf.tanh(tf.matmul(x, x)) * 0.5)
    x = function(tf.ones((512, 512)))
    with recorded(lambda: x.numpy()) as records:  # noqa: PLW0108  the name is bound to another tensor later
        for _ in range(CALLS):
            x = function(x)
    launches = {name: count for name, (count, _ns) in records.kernels.items()}
    answer(calls=CALLS, launches=launches, lost=records.lost)


if __name__ == "__main__":
    main()
