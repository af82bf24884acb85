# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A session whose network fails in each of its parts in turn, before and after it did its work."""

from contextlib import ExitStack, contextmanager
from itertools import count

import pytest
import torch
from streams import feed, fingerprints, inside, session_of

# What the next frame of a full window is, by the settings of the session.
KINDS = {
    "keyframe": {"interval": 1},
    "non-keyframe": {"interval": 4},
    "pending": {"mode": "manual", "room": 5},
}
FIRST = 9
ERRORS = (
    lambda: RuntimeError("planned"),
    lambda: torch.OutOfMemoryError("CUDA out of memory (planned)"),
    lambda: KeyboardInterrupt(),
)


def full_session(kind):
    session = session_of(**KINDS[kind])
    feed(session, range(FIRST))
    if kind == "pending":
        session.commit()
    return session


def parts(session):
    """Names of the modules that a step runs, in no particular order."""
    model, names = session._model, set()
    with ExitStack() as stack:
        for name, module in model.named_modules():
            hook = module.register_forward_hook(lambda *_, name=name: names.add(name))
            stack.callback(hook.remove)
        feed(session, [FIRST])
    return sorted(names)


@contextmanager
def failing(module, when, error):
    def fail(*_):
        raise error()

    register = {
        "before": module.register_forward_pre_hook,
        "after": module.register_forward_hook,
    }[when]
    hook = register(fail)
    try:
        yield
    finally:
        hook.remove()


@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_in_every_block_head_and_stage_leaves_no_trace(kind):
    session, twin = full_session(kind), full_session(kind)
    names = parts(full_session(kind))
    # The whole trunk and both heads take part; what is missing here would not be tested.
    for part in (
        "aggregator.patch_embed",
        "aggregator.frame_blocks.3",
        "aggregator.global_blocks.3",
    ):
        assert any(name.startswith(part) for name in names), part
    assert {"camera_head", "depth_head"} <= set(names) and len(names) > 60
    number = count()
    before = inside(session)
    for name in names:
        for when in ("before", "after"):
            error = ERRORS[next(number) % len(ERRORS)]
            with (
                pytest.raises(type(error())),
                failing(session._model.get_submodule(name), when, error),
            ):
                feed(session, [FIRST])
            assert inside(session) == before, (name, when)
    ahead = range(FIRST, FIRST + 6)
    assert fingerprints(feed(session, ahead)) == fingerprints(feed(twin, ahead))
    session.reset()
    fresh = session_of(**KINDS[kind])
    assert fingerprints(feed(session, range(12))) == fingerprints(feed(fresh, range(12)))


@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_at_every_cache_operation_leaves_no_trace(kind, monkeypatch):
    session, twin = full_session(kind), full_session(kind)
    cache = session._model.aggregator.kv_cache
    before = inside(session)
    for operation in ("begin_frame", "write", "attend"):
        blocks = range(1 if operation == "begin_frame" else cache.num_blocks)
        original = getattr(cache, operation)
        for block in blocks:
            for when in ("before", "after"):
                calls = count()

                def failing_call(*args, original=original, block=block, when=when, calls=calls):
                    here = next(calls) == block
                    if here and when == "before":
                        raise torch.OutOfMemoryError("CUDA out of memory (planned)")
                    result = original(*args)
                    if here:
                        raise RuntimeError("planned")
                    return result

                with monkeypatch.context() as patch:
                    patch.setattr(cache, operation, failing_call)
                    with pytest.raises(RuntimeError, match="planned"):
                        feed(session, [FIRST])
                assert inside(session) == before, (operation, block, when)
    ahead = range(FIRST, FIRST + 6)
    assert fingerprints(feed(session, ahead)) == fingerprints(feed(twin, ahead))
