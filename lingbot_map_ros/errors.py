# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Typed errors: each says what happened and what to do about it."""


class LingbotMapError(RuntimeError):
    """Base of every error that this package raises on purpose."""


class ConfigurationError(LingbotMapError):
    """A setting, or a combination of settings, that cannot work."""


class BackendUnavailableError(ConfigurationError):
    """The chosen attention back end cannot run on this device, dtype or installation."""


class MemoryPlanError(ConfigurationError):
    """What was asked for does not fit into the memory of the device."""


class InputError(LingbotMapError):
    """An image or tensor whose shape, type or content cannot be processed."""


class CacheError(LingbotMapError):
    """An operation that the key/value cache cannot carry out; the cache is as it was."""


class CacheFullError(CacheError):
    """A page pool or a fixed-capacity buffer has no room for another frame."""


class RollbackError(CacheError):
    """There is no revocable frame: nothing pending, or a commit or eviction came after it."""


class CheckpointError(LingbotMapError):
    """A checkpoint that is missing, damaged, altered or made for another model."""


class SourceError(LingbotMapError):
    """A bag, video, image folder or file that cannot be read."""


class ExportError(LingbotMapError):
    """A map or trajectory that could not be written."""


PILLOW_ERRORS = (OSError, SyntaxError, ValueError, NotImplementedError)
"""What Pillow raises for files that are no image, damaged inside, or of a kind it does not read."""
