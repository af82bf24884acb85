# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Where frames lie in the patch pool, so that a kernel can read it as one dense tensor.

A frame's page follows from its number alone: scale frames, then a ring as long as the window, then
the frames beyond it. What is visible is then one run of rows, in an order that does not depend on
what was undone in between. The newcomer of a full window cannot overwrite the frame that leaves,
since the step may still be undone: that one moves to the spare page first.
"""

from dataclasses import replace
from typing import NamedTuple

from lingbot_map_ros.layers.page_table import PageTable


class PageMove(NamedTuple):
    """Copy of a patch page's content from ``source`` to ``target``, which is free at that time."""

    source: int
    target: int


def pack(table: PageTable, *, deferred: bool) -> tuple[PageTable, tuple[PageMove, ...]]:
    """Bring the frames that the next one will see to their places, and free the next one's own.

    Returns the same frames on other pages and the copies that bring them there, to be made in this
    order. ``deferred``: the next frame does not evict. A table without a free page stays as it is.
    """
    if not table.free:
        return table, ()
    layout, scale = table.layout, len(table.scale)
    pages = [*table.scale, *table.window]
    leaving = 0
    if not deferred and scale >= layout.scale_frames:
        leaving = max(len(table.window) + 1 - layout.window, 0)
    staying = [*range(scale), *range(scale + leaving, len(pages))]
    places = _places(table, leaving)
    holder = {page: i for i, page in enumerate(pages)}
    free, moves = set(table.free), list[PageMove]()

    def move(i: int, target: int) -> None:
        source, pages[i] = pages[i], target
        moves.append(PageMove(source, target))
        free.remove(target)
        free.add(source)
        del holder[source]
        holder[target] = i

    def vacate(page: int) -> None:
        if page not in free:
            move(holder[page], min(free.difference(places), default=min(free)))

    for i, place in zip(staying, places[:-1], strict=True):
        if pages[i] != place:
            vacate(place)
            move(i, place)
    vacate(places[-1])
    if not moves:
        return table, ()
    packed = replace(
        table,
        free=tuple(sorted(free, reverse=True)),
        scale=tuple(pages[:scale]),
        window=tuple(pages[scale:]),
    )
    return packed, tuple(moves)


def _places(table: PageTable, leaving: int) -> list[int]:
    """Pages for the scale frames, the window frames but the oldest ``leaving``, and the next frame.

    The last patch page comes first: the run ends where the special tokens begin.
    """
    layout, scale = table.layout, len(table.scale)
    ring, length = layout.scale_frames, layout.window
    slots = list(range(scale))
    if scale < ring:
        slots.append(scale)
    else:
        oldest = table.num_frames - len(table.window) + leaving
        for age, number in enumerate(range(oldest, table.num_frames + 1)):
            slots.append(ring + ((number - ring) % length if age < length else age))
    return [layout.patch_pages - 1 - slot for slot in slots]
