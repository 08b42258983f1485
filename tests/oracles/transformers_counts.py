"""Count the parameters of transformers' own classes on the meta device. See ``recording.answer``.

In: ``{"model_type", "config"}``. Out: ``{"parameters", "routed", "config"}``: all parameters, those of
routed experts, and the configuration with the defaults of its class.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from recording import answer
from transformers import AutoConfig, AutoModelForCausalLM


def counts_of(case: dict[str, Any]) -> dict[str, Any]:
    config = AutoConfig.for_model(case["model_type"], **case["config"])
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    named = list(model.named_parameters())
    # One family draws a few vectors by hand, which lie on no meta device.
    assert sum(one.numel() for _, one in named if not one.is_meta) < 1 << 16
    return {
        "parameters": sum(one.numel() for _, one in named),
        "routed": sum(one.numel() for name, one in named if ".experts." in name),
        "config": json.loads(config.to_json_string(use_diff=False)),
    }


if __name__ == "__main__":
    answer(counts_of)
