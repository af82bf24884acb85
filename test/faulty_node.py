# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``map_node`` with faults on demand: ``python faulty_node.py ORDERS --ros-args ...``.

The file ORDERS names the fault of the next frames; it is read at every place that may fail.
"""

import sys
import time
from pathlib import Path

import torch

from lingbot_map_ros.mapping.mapper import Mapper
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.ros.node import main
from lingbot_map_ros.ros.pipeline import Pipeline
from lingbot_map_ros.ros.publishers import Publishers

ORDERS = Path(sys.argv.pop(1))


def order():
    return ORDERS.read_text()


def out_of_memory(*_):
    raise torch.OutOfMemoryError("CUDA out of memory (planned)")


def fail(*_):
    raise RuntimeError("planned fault")


def slow(*_):
    sys.stderr.write("slow step begins\n")
    time.sleep(6.0)


def no_number(module, inputs, output):
    return output * float("nan")


HOOKS = {
    "out of memory in a block": ("aggregator.global_blocks.2", out_of_memory),
    "out of memory in the depth head": ("depth_head", out_of_memory),
    "fault in the camera head": ("camera_head", fail),
    "fault that ends the worker": ("camera_head", fail),
    "slow step": ("aggregator.global_blocks.1", slow),
    "no finite pose": ("camera_head", no_number),
}
step = GCTStream.step
note, snapshot = Pipeline.fail, Pipeline.snapshot
publish = Publishers.publish_depth
add = Mapper.add


def hook_of(fault):
    """Module and hook of an order, or None; ``out of memory in: NAME`` is one of any module."""
    if fault.startswith("out of memory in: "):

        def hook(*_):
            sys.stderr.write(f"{fault} now\n")
            out_of_memory()

        return fault.split(": ")[1], hook
    return HOOKS.get(fault)


def faulty_step(self, *args, **kwargs):
    if (found := hook_of(order())) is None:
        return step(self, *args, **kwargs)
    name, hook = found
    handle = self.get_submodule(name).register_forward_hook(hook)
    try:
        return step(self, *args, **kwargs)
    finally:
        handle.remove()


def faulty_publish(self, frame):
    if order() == "fault while publishing":
        fail()
    publish(self, frame)


def faulty_fail(self, error):
    if order() == "fault that ends the worker":
        fail()
    note(self, error)


def faulty_snapshot(self):
    if order() == "fault in the snapshot":
        fail()
    return snapshot(self)


def faulty_add(self, result):
    if order() == "fault in the map":
        fail()
    while order() == "held map":
        time.sleep(0.02)
    add(self, result)


Mapper.add = faulty_add
Publishers.publish_depth = faulty_publish
Pipeline.fail, Pipeline.snapshot = faulty_fail, faulty_snapshot
GCTStream.step = faulty_step

if __name__ == "__main__":
    sys.exit(main(sys.argv))
