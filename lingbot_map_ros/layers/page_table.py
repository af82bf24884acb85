# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which page holds which frame: the policy of the paged key/value cache, without tensors.

A table is an immutable value. Every operation returns a new one, so a transaction is kept by
remembering the old value, and all blocks that did the same operations share one object.

Two pools share one numbering. Patch pages come first, one a frame, and are recycled when the frame
leaves the window. Special pages lie behind them: the special tokens of all kept frames, packed
without gaps in the order of arrival and never evicted.

Patch pages are taken from the last one downwards. All visible rows are then one run that ends with
the newest special token, and the pool can be read as a dense tensor, as long as the pages in use
have no hole (``page_packing``).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from lingbot_map_ros.errors import CacheFullError, ConfigurationError, RollbackError
from lingbot_map_ros.integers import require_integers


@dataclass(frozen=True)
class PageLayout:
    """Sizes of the pools.

    ``max_frames`` bounds the frames whose special tokens are kept, ``pending_frames`` those that
    may stand beyond the window while their eviction is deferred.
    """

    tokens_per_frame: int
    num_special: int
    scale_frames: int
    window: int
    max_frames: int
    pending_frames: int

    def __post_init__(self) -> None:
        require_integers(self)
        if self.tokens_per_frame <= self.num_special:
            raise ConfigurationError(
                f"tokens_per_frame={self.tokens_per_frame} leaves no patch beside "
                f"{self.num_special} special tokens"
            )
        if self.window < 1:
            raise ConfigurationError(
                f"sliding_window={self.window} would evict a frame before it is attended to; "
                "use at least 1"
            )
        if self.num_special < 1 or self.scale_frames < 0 or self.pending_frames < 1:
            raise ConfigurationError(
                "a cache needs num_special_tokens >= 1, scale_frames >= 0 and pending_frames >= 1"
            )

    @property
    def page_size(self) -> int:
        """Rows of a page: the patches of a frame, so that no padding row can act as a key."""
        return self.tokens_per_frame - self.num_special

    @property
    def patch_pages(self) -> int:
        """Pages of the recyclable pool."""
        return self.scale_frames + self.window + self.pending_frames

    @property
    def special_pages(self) -> int:
        """Pages of the pool for special tokens."""
        return -(-self.max_frames * self.num_special // self.page_size)

    @property
    def num_pages(self) -> int:
        """Pages of both pools."""
        return self.patch_pages + self.special_pages


def _in_order(pages: Iterable[int]) -> tuple[int, ...]:
    """Free pages in the order of use, which is the same whatever was undone in between."""
    return tuple(sorted(pages, reverse=True))


@dataclass(frozen=True)
class PageTable:
    """State of one block's cache: page numbers by region, oldest first.

    ``revocable`` counts the newest frames that can still be rolled back: an eviction or a commit
    makes everything before it permanent.
    """

    layout: PageLayout
    free: tuple[int, ...]
    scale: tuple[int, ...] = ()
    window: tuple[int, ...] = ()
    num_frames: int = 0
    revocable: int = 0
    _rows: dict[str, npt.NDArray[np.int64]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def empty(cls, layout: PageLayout) -> "PageTable":
        """Table without frames."""
        return cls(layout, free=_in_order(range(layout.patch_pages)))

    def append(self) -> "PageTable":
        """Give the next frame a page: of the scale region until that is full, then of the window.

        Raises ``CacheFullError`` when either pool has no room.
        """
        layout = self.layout
        if self.num_frames >= layout.max_frames:
            raise CacheFullError(
                f"the special-token pool holds its {layout.max_frames} frames; reset the cache, "
                "open a new window, keep fewer keyframes, or build the cache with a larger "
                "max_total_frames"
            )
        if not self.free:
            raise CacheFullError(
                f"all {layout.patch_pages} patch pages are in use (frames in the window: "
                f"{len(self.window)}, its size: {layout.window}); commit or roll back pending "
                "frames, or evict, before the next frame"
            )
        page, free = self.free[0], self.free[1:]
        grown = replace(
            self, free=free, num_frames=self.num_frames + 1, revocable=self.revocable + 1
        )
        if len(self.scale) < layout.scale_frames:
            return replace(grown, scale=(*self.scale, page))
        return replace(grown, window=(*self.window, page))

    def evict(self, window: int | None = None) -> "PageTable":
        """Free the oldest pages beyond ``window`` frames (the layout's by default)."""
        surplus = len(self.window) - (self.layout.window if window is None else window)
        if surplus <= 0:
            return self
        return replace(
            self,
            free=_in_order(self.free + self.window[:surplus]),
            window=self.window[surplus:],
            revocable=0,
        )

    def commit(self, keep_pending: int = 0, window: int | None = None) -> "PageTable":
        """Make frames permanent and evict what they pushed out of the window.

        The newest ``keep_pending`` frames stay revocable, and eviction goes only so far that this
        remains possible.
        """
        keep = min(keep_pending, self.revocable)
        limit = self.layout.window if window is None else window
        evicted = self.evict(limit + min(keep, len(self.window)))
        return replace(evicted, revocable=keep) if evicted.revocable != keep else evicted

    def rollback(self) -> "PageTable":
        """Undo the newest append. Raises ``RollbackError`` when no frame is revocable."""
        if not self.revocable:
            reason = (
                "the cache is empty"
                if not self.num_frames
                else "the newest frame was committed, or an eviction followed it"
            )
            raise RollbackError(
                f"nothing to roll back: {reason}; roll back while eviction is deferred, before "
                "execute_deferred_eviction"
            )
        scale, window = self.scale, self.window
        if window:
            page, window = window[-1], window[:-1]
        else:
            page, scale = scale[-1], scale[:-1]
        return replace(
            self,
            free=_in_order((page, *self.free)),
            scale=scale,
            window=window,
            num_frames=self.num_frames - 1,
            revocable=self.revocable - 1,
        )

    @property
    def run(self) -> tuple[int, int] | None:
        """First row, and the one behind the last, if all visible rows are one run; else None."""
        pages = len(self.scale) + len(self.window)
        first = self.layout.patch_pages - pages
        if min(self.scale + self.window, default=first) < first:
            return None
        size = self.layout.page_size
        return first * size, self.layout.patch_pages * size + self.special_count

    @property
    def special_count(self) -> int:
        """Special tokens held."""
        return self.num_frames * self.layout.num_special

    @property
    def special(self) -> tuple[int, ...]:
        """Special pages in use."""
        first = self.layout.patch_pages
        return tuple(range(first, first - (-self.special_count // self.layout.page_size)))

    @property
    def visible(self) -> tuple[int, ...]:
        """Page table as a kernel reads it: scale, window, special."""
        return self.scale + self.window + self.special

    @property
    def last_page_len(self) -> int:
        """Valid rows of the last visible page; every other visible page is full."""
        return (self.special_count - 1) % self.layout.page_size + 1 if self.num_frames else 0

    def frame_rows(self) -> npt.NDArray[np.int64]:
        """Rows ``[tokens_per_frame]`` of the newest frame in the flattened pool, specials first."""
        if "frame" not in self._rows:
            layout = self.layout
            page = (self.window or self.scale)[-1]
            special = layout.patch_pages * layout.page_size + self.special_count
            self._rows["frame"] = np.concatenate(
                (
                    np.arange(special - layout.num_special, special),
                    page * layout.page_size + np.arange(layout.page_size),
                )
            )
        return self._rows["frame"]

    def visible_rows(self) -> npt.NDArray[np.int64]:
        """All visible rows of the flattened pool, in the order of ``visible``."""
        if "visible" not in self._rows:
            size = self.layout.page_size
            pages = np.asarray(self.visible, dtype=np.int64)[:, None] * size
            rows = (pages + np.arange(size)).reshape(-1)
            self._rows["visible"] = rows[: len(rows) - (size - self.last_page_len)]
        return self._rows["visible"]
