"""The script that makes the pictures of the documents."""

import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from kernelcast.grafana import dashboards
from release.pictures import OUTPUT, PAGES, address, drawing, with_palette

REPOSITORY = Path(__file__).resolve().parents[3]


def test_every_picture_in_a_document_can_be_made_again() -> None:
    texts = [path.read_text() for path in (REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"))]
    shown = {name for text in texts for name in re.findall(r"pictures/([\w-]+)\.png", text)}
    assert shown
    assert {path.stem for path in OUTPUT.iterdir()} == shown
    assert shown <= set(PAGES)


def test_all_pictures_together_are_small() -> None:
    assert sum(path.stat().st_size for path in OUTPUT.iterdir()) < 1_000_000


@pytest.mark.parametrize("kind", range(5))
def test_a_palette_keeps_the_pixels_of_a_picture_with_few_colours(kind: int) -> None:
    pixels = np.random.default_rng(1).choice(np.array([[0, 10, 250], [255, 255, 255], [7, 7, 7]], np.uint8), (4, 5))
    lines, above = b"", bytearray(15)
    for row in pixels:
        plain = bytearray(row.tobytes())
        wanted = bytearray(plain)
        for place in range(15):
            left, up = wanted[place - 3] if place > 2 else 0, above[place]
            corner = above[place - 3] if place > 2 else 0
            _, _, paeth = min(
                (abs(left + up - corner - one), number, one) for number, one in enumerate((left, up, corner))
            )
            plain[place] = (wanted[place] - (0, left, up, (left + up) // 2, paeth)[kind]) % 256
        lines, above = lines + bytes([kind]) + bytes(plain), wanted
    small = with_palette(png(5, 4, 2, zlib.compress(lines)))
    head, body = small.index(b"PLTE"), small.index(b"IDAT")
    palette = np.frombuffer(small[head + 4 : head + 4 + 9], np.uint8).reshape(3, 3)
    numbers = np.frombuffer(zlib.decompress(small[body + 4 : -16]), np.uint8).reshape(4, 6)[:, 1:]
    assert (palette[numbers] == pixels).all()


def png(width: int, height: int, kind: int, data: bytes) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", data), (b"IEND", b""))
    made = (
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)


def test_every_page_that_can_be_drawn_exists() -> None:
    assert {f"{uid}.json" for uid in PAGES.values()} == set(dashboards.render())


def test_the_demos_output_names_the_bridge() -> None:
    line = "Dashboards, as soon as the services run: http://127.0.0.1:4711/pages?from=now-5m&refresh=5s\n"
    assert address(line) == "http://127.0.0.1:4711"
    assert address("starting the services") is None


def test_the_browser_draws_one_page_into_one_file_with_a_profile_of_its_own() -> None:
    command = drawing("chromium", "http://b/pages/x", Path("/p/fleet.png"), Path("/t/fleet"))
    assert command[0] == "chromium"
    assert command[-1] == "http://b/pages/x"
    assert {"--headless", "--screenshot=/p/fleet.png", "--user-data-dir=/t/fleet"} <= set(command)
