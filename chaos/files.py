"""How files are written that somebody may read at any time: whole, or as they were before.

Data are JSON for people and machines alike. Nothing here waits for the disk; what must outlive a crash of the machine
is `chaos.agent.ledger`'s.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec


def json_of(data: Any) -> bytes:
    """Indented, with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(data)) + b"\n"


def write_whole(path: Path, content: bytes) -> None:
    """Write the file at one stroke. Raises OSError, and then nothing is left beside it."""
    aside = path.with_name(f".{path.name}.part")
    try:
        aside.write_bytes(content)
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
