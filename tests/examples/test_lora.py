"""examples/lora on a few made-up lines: adapters on its decoder travel alone, under masks and noise."""

from __future__ import annotations

import runpy
from pathlib import Path

import torch

RUN = Path(__file__).parents[2] / "examples" / "lora" / "run.py"


def test_adapters_on_the_decoder_learn_from_speakers(tmp_path: Path) -> None:
    example = runpy.run_path(str(RUN))
    text = tmp_path / "text.txt"
    said = "To be, or not to be, that is the question. " * 8
    text.write_text("\n\n".join(f"{name}:\n{said}" for name in ("ANNE", "BRUTUS", "CLEOPATRA", "EXIT", "")))
    windows, characters = example["speakers"](text)
    assert list(windows) == ["ANNE", "BRUTUS", "CLEOPATRA", "EXIT"]
    base = example["Decoder"](characters)
    clients = {name: (own[:4, :-1].numpy(), own[:4, 1:].numpy()) for name, own in windows.items()}
    way = example["Way"](rank=2, lr=1e-3, rounds=1, server=1.0, epsilon=8.0)
    model, result = example["adapt"](base, clients, way, gpu=None, seed=1)
    before = base.state_dict()
    kept = {name.replace(".base.", "."): tensor for name, tensor in model.state_dict().items()}
    assert all(torch.equal(kept[name], tensor) for name, tensor in before.items())  # what is frozen did not move
    added = {name: tensor for name, tensor in kept.items() if name not in before}
    assert all(bool(tensor.any()) for tensor in added.values())  # those that began at zero did
    assert result.parameters == sum(tensor.numel() for tensor in added.values()) == 16_384
    assert result.privacy is not None
    assert result.privacy.epsilon <= 8.0
