"""Long lines drawn by fewer points that look the same."""

from __future__ import annotations

from collections.abc import Sequence

MOST_POINTS = 2_000  # about as many as a page is wide


def places(lines: Sequence[Sequence[float | None]], most: int = MOST_POINTS) -> list[int]:
    """Return which points of lines of one length to draw: about ``most`` of each where there are more, else all.

    Points are taken in buckets; of each bucket the lowest and the highest of every line stay, so that no peak is lost,
    and the first and the last point of the lines. All lines keep the same points, so they may still be stacked.

    >>> places([[0, 1, 0, 9, 0, 1, 0, 1, -5, 0]], most=4)
    [0, 3, 7, 8, 9]
    """
    count = len(lines[0]) if lines else 0
    if count <= most:
        return list(range(count))
    width = -(-2 * count * len(lines) // most)
    kept = {0, count - 1}
    for heights in lines:
        for start in range(0, count, width):
            known = [
                (height, place)
                for place, height in enumerate(heights[start : start + width], start)
                if height is not None
            ]
            kept |= {min(known)[1], max(known)[1]} if known else {start}  # a gap stays one
    return sorted(kept)
