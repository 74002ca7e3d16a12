"""Makes the journals that these tests judge importable: `from journals import Story`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
