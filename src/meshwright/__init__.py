"""Meshwright maps each communication group of a training job to the hardware paths it uses.

The public front: everything a script needs, loaded when it is used::

    import meshwright

    plan = meshwright.plan_job(meshwright.outline_job(meshwright.load_job("job.yaml")))
    document = meshwright.map_json(plan)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshwright.chain.cluster_of_job import load_cluster
    from meshwright.chain.jobfile import Job, load_job
    from meshwright.chain.outline import outline_job
    from meshwright.chain.outlined import Outline
    from meshwright.chain.plan import Plan, plan_job
    from meshwright.cluster.fabric import Fabric
    from meshwright.cluster.facts import Facts
    from meshwright.cluster.readers import read_topology
    from meshwright.errors import InputError, MeshwrightError, UsageError
    from meshwright.findings import Finding, Place, Severity
    from meshwright.job.catalogue import find_model, model_names
    from meshwright.origin import Origin
    from meshwright.report.map_json import map_json
    from meshwright.report.map_text import map_text

_HOMES = {
    "Fabric": "meshwright.cluster.fabric",
    "Facts": "meshwright.cluster.facts",
    "Finding": "meshwright.findings",
    "InputError": "meshwright.errors",
    "Job": "meshwright.chain.jobfile",
    "MeshwrightError": "meshwright.errors",
    "Origin": "meshwright.origin",
    "Outline": "meshwright.chain.outlined",
    "Place": "meshwright.findings",
    "Plan": "meshwright.chain.plan",
    "Severity": "meshwright.findings",
    "UsageError": "meshwright.errors",
    "find_model": "meshwright.job.catalogue",
    "load_cluster": "meshwright.chain.cluster_of_job",
    "load_job": "meshwright.chain.jobfile",
    "map_json": "meshwright.report.map_json",
    "map_text": "meshwright.report.map_text",
    "model_names": "meshwright.job.catalogue",
    "outline_job": "meshwright.chain.outline",
    "plan_job": "meshwright.chain.plan",
    "read_topology": "meshwright.cluster.readers",
}

__version__ = "0.1.0"
__all__ = [  # noqa: RUF022 - in the order of use
    "load_job",
    "outline_job",
    "plan_job",
    "map_json",
    "map_text",
    "read_topology",
    "load_cluster",
    "find_model",
    "model_names",
    "Job",
    "Outline",
    "Plan",
    "Fabric",
    "Facts",
    "Finding",
    "Severity",
    "Place",
    "Origin",
    "MeshwrightError",
    "InputError",
    "UsageError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home; ``import meshwright`` alone loads no numpy."""
    if name not in _HOMES:
        raise AttributeError(f"module 'meshwright' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
