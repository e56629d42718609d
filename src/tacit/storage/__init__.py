"""Everything that is written to disk: files that are whole or not there, files that only grow, folders and locks.

Every refusal of the operating system comes out as a :class:`~tacit.errors.StorageError`.
"""

from tacit.storage.atomic import write_atomically
from tacit.storage.failures import RUN_ADVICE, cannot_read, cannot_write
from tacit.storage.folders import is_folder, is_there, make_folder, remove, sync_folder

__all__ = [
    "RUN_ADVICE",
    "cannot_read",
    "cannot_write",
    "is_folder",
    "is_there",
    "make_folder",
    "remove",
    "sync_folder",
    "write_atomically",
]
