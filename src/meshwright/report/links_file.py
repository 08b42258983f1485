"""Every link with its load, in a file: arrays (``.npz``) or one JSON object a line (``.ndjson``)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from meshwright.chain.plan import Plan
from meshwright.errors import UsageError
from meshwright.report.map_json import link_json
from meshwright.report.new_file import check_new_file, new_file


def check_links_file(path: str) -> None:
    """Refuse an unknown ending or a file that exists: nothing is overwritten."""
    target = Path(path)
    if target.suffix not in (".npz", ".ndjson"):
        raise UsageError(f"{path}: --links writes .npz or .ndjson")
    check_new_file(path)


def write_links(plan: Plan, path: str) -> None:
    """Write all links; loads of an axis are a row of ``load_bytes[axis, link]`` in the npz."""
    links = plan.fabric.links
    target = Path(path)
    if target.suffix == ".ndjson":
        with new_file(path) as file:
            for link in range(len(links)):
                file.write(msgspec.json.encode(link_json(plan, link)) + b"\n")
        return
    with new_file(path) as file:
        np.savez_compressed(
            file,
            axes=np.array([route.axis for route in plan.routes]),
            load_bytes=plan.load_bytes.astype(np.float32),
            capacity_bytes_per_s=links.capacity_bytes_per_s(),
            link_class=links.class_of_link,
            class_kinds=np.array([one.kind for one in links.classes]),
            tail=links.tail,
            head=links.head,
        )
