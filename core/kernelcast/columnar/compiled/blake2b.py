"""BLAKE2b's rounds for four messages at once, as vector instructions; the bridge hashes label sets with it.

hashlib takes a microsecond for each short message, most of it for the calls. Four messages side by side share every
instruction. numba would not find these vectors in a loop, so the instructions are generated here. The caller is
`bridge/tables/hashing.py`.

Source: RFC 7693, section 3.2.
"""

from typing import TYPE_CHECKING, Any, Final, cast

from llvmlite import ir  # type: ignore[import-untyped]  # llvmlite publishes no types
from numba import types
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelcast.columnar.columns import Int64Array, UInt64Array

LANES: Final = 4
"""Messages that are hashed side by side."""
BLOCK_BYTES: Final = 128
STATE_WORDS: Final = 8
MESSAGE_WORDS: Final = 16

MESSAGE_ROW: Final = 2 * STATE_WORDS
"""First of the rows of `work` that hold a block of each message; the rows before it hold the words that are mixed."""
WORK_ROWS: Final = MESSAGE_ROW + MESSAGE_WORDS

# The initial words of the state (RFC 7693, section 2.6).
INITIAL: Final = (
    0x6A09E667F3BCC908,
    0xBB67AE8584CAA73B,
    0x3C6EF372FE94F82B,
    0xA54FF53A5F1D36F1,
    0x510E527FADE682D1,
    0x9B05688C2B3E6C1F,
    0x1F83D9ABFB41BD6B,
    0x5BE0CD19137E2179,
)
ORDERS: Final = (
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
    (14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3),
    (11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4),
    (7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8),
    (9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13),
    (2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9),
    (12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11),
    (13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10),
    (6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5),
    (10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0),
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
    (14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3),
)
"""The order in which each round takes the words of a block."""
_MIXED: Final = (
    (0, 4, 8, 12),
    (1, 5, 9, 13),
    (2, 6, 10, 14),
    (3, 7, 11, 15),
    (0, 5, 10, 15),
    (1, 6, 11, 12),
    (2, 7, 8, 13),
    (3, 4, 9, 14),
)
"""The words that each mixing step of a round mixes: four columns, then four diagonals."""

_WORD: Final = ir.IntType(64)
_VECTOR: Final = ir.VectorType(_WORD, LANES)


def _splat(value: int) -> Any:
    return ir.Constant(_VECTOR, [value] * LANES)


def _rotated(builder: Any, value: Any, bits: int) -> Any:
    """The value, each lane rotated right; LLVM makes one instruction of the three where the processor has it."""
    return builder.or_(builder.lshr(value, _splat(bits)), builder.shl(value, _splat(64 - bits)))


def _mix(builder: Any, v: list[Any], words: tuple[int, int, int, int], x: Any, y: Any) -> None:
    """Generate the mixing function G of RFC 7693, section 3.1; `x` and `y` are words of the message."""
    a, b, c, d = words
    for message, first, second in ((x, 32, 24), (y, 16, 63)):
        v[a] = builder.add(builder.add(v[a], v[b]), message)
        v[d] = _rotated(builder, builder.xor(v[d], v[a]), first)
        v[c] = builder.add(v[c], v[d])
        v[b] = _rotated(builder, builder.xor(v[b], v[c]), second)


# numba calls it with the types of the arguments, and then `generate` to emit LLVM code for a call. `work` and `orders`
# are arrays; `row` of `work` is one vector: the same word of each of the four messages.
def _mix_round(_typing: Any, work: Any, orders: Any, _first: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        work_data, order_data = (
            context.make_array(kind)(context, builder, argument).data
            for kind, argument in zip(signature.args[:2], arguments[:2], strict=True)
        )

        def place(row: Any) -> Any:
            address = builder.gep(work_data, [builder.mul(row, _WORD(LANES))])
            return builder.bitcast(address, _VECTOR.as_pointer())

        def message(position: int) -> Any:
            row = builder.load(builder.gep(order_data, [builder.add(arguments[2], _WORD(position))]))
            return builder.load(place(builder.add(row, _WORD(MESSAGE_ROW))), align=8)

        v = [builder.load(place(_WORD(row)), align=8) for row in range(MESSAGE_ROW)]
        for step, words in enumerate(_MIXED):
            _mix(builder, v, words, message(2 * step), message(2 * step + 1))
        for row, value in enumerate(v):
            builder.store(value, place(_WORD(row)), align=8)
        return context.get_dummy_value()

    return types.void(work, orders, types.int64), generate


mix_round = cast("Callable[[UInt64Array, Int64Array, int], None]", intrinsic(_mix_round))
"""Mix one round of LANES messages.

`work` has WORK_ROWS rows of LANES words: 2 * STATE_WORDS rows that are mixed, then the blocks. The orders lie end to
end; the third argument is the index of the round's own. The caller has checked both lengths.
"""
