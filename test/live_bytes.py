# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The peak of what tensors hold while a piece of code runs, on any device."""

import weakref
from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts the storages made under it, for as long as a tensor of theirs lives."""

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self._tensors, self._sizes = Counter(), {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        known = {
            t.untyped_storage().data_ptr()
            for t in tree_leaves((args, kwargs))
            if isinstance(t, torch.Tensor)
        }
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._enter(tensor, known)
        return result

    def _enter(self, tensor, known):
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        if not key or (key not in self._sizes and key in known):
            return
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
        self._tensors[key] += 1
        weakref.finalize(tensor, self._leave, key)

    def _leave(self, key):
        self._tensors[key] -= 1
        if not self._tensors[key]:
            del self._tensors[key]
            self.now -= self._sizes.pop(key)
