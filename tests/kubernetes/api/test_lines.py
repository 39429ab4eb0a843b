"""Lines come out whole, whatever the pieces."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.kubernetes.api.errors import WireError
from shoal.kubernetes.api.lines import split_lines


async def _pieces(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def _split(pieces: list[bytes], limit_bytes: int = 1 << 20) -> list[bytes]:
    async def collect() -> list[bytes]:
        return [line async for line in split_lines(_pieces(pieces), limit_bytes)]

    return asyncio.run(collect())


@given(
    st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=20),
    st.binary(max_size=10).filter(lambda line: b"\n" not in line),
    st.lists(st.integers(1, 7), min_size=1),
)
def test_any_cutting_gives_the_same_lines(
    lines: list[bytes], unfinished: bytes, sizes: list[int]
) -> None:
    text = b"".join(line + b"\n" for line in lines) + unfinished
    pieces, start, turn = [], 0, 0
    while start < len(text):
        size = sizes[turn % len(sizes)]
        pieces.append(text[start : start + size])
        start, turn = start + size, turn + 1
    assert _split(pieces) == [line for line in lines if line]


def test_a_line_of_megabytes_comes_through_and_a_monster_does_not() -> None:
    long = b"x" * (3 << 20)
    pieces = [long[i : i + 65_536] for i in range(0, len(long), 65_536)]
    assert _split([*pieces, b"\n"], limit_bytes=4 << 20) == [long]
    half = b"y" * 400_000
    assert _split([half, half + b"\n"] * 9, limit_bytes=1_000_000) == [half + half] * 9
    with pytest.raises(WireError, match="longer than"):
        _split(pieces, limit_bytes=1 << 20)
