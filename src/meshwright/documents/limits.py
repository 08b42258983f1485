"""How large an untrusted document may be; beyond these it is refused with a place."""

from __future__ import annotations

from typing import Final

MAX_FILE_BYTES: Final = 16 << 20
"""Largest file that is read."""

MAX_DEPTH: Final = 64
"""Containers inside each other, the root counted: ``[[1]]`` has depth 2."""

MAX_NODES: Final = 1_000_000
"""Values written in one document; a rank table for 131,072 GPUs has about 530,000."""

MAX_TOML_NODES: Final = 250_000
"""Values in one TOML document: ``tomllib`` and the scan beside it take about 20 us for each."""

MAX_ALIASED_NODES: Final = 100_000
"""Values that YAML aliases may add when each is replaced by what it stands for."""

MAX_PROBLEMS: Final = 200
"""Problems listed for one document; a last line says how many more there are."""

MAX_EXCERPT: Final = 120
"""Characters of the offending line that are shown."""

MAX_SHOWN: Final = 60
"""Characters of a value that are shown inside a message."""

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
