from __future__ import annotations

import pytest
import torch
from torch import nn

from tacit.training.dropout import KeyedDropout, scaled_mask, use_keys


def _keyed(*, per_channel: bool = False, probability: float = 0.5, site: int = 0, key: int = 5) -> KeyedDropout:
    layer = KeyedDropout(probability=probability, per_channel=per_channel, site=site)
    layer.key.fill_(key)
    return layer


def test_what_stays_is_scaled() -> None:
    out = _keyed(probability=0.25)(torch.ones(100, 100))
    assert out.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert float(out.mean()) == pytest.approx(1.0, abs=0.03)


def test_it_tells_its_probability_as_the_layer_it_stands_for() -> None:
    module = nn.Sequential(nn.Dropout(0.1))
    use_keys(module)
    (layer,) = module.children()
    assert isinstance(layer, KeyedDropout)
    assert (layer.p, layer.inplace) == (0.1, False)


def test_channels_go_as_a_whole() -> None:
    out = _keyed(per_channel=True)(torch.ones(8, 6, 3, 3))
    flat = out.flatten(2)
    assert torch.equal(flat.amin(2), flat.amax(2))
    assert 0 < int((flat[..., 0] == 0).sum()) < 48


def test_the_mask_is_a_function_of_key_and_site() -> None:
    ones = torch.ones(20, 20)
    assert torch.equal(_keyed()(ones), _keyed()(ones))
    assert not torch.equal(_keyed()(ones), _keyed(key=6)(ones))
    assert not torch.equal(_keyed()(ones), _keyed(site=1)(ones))


def test_an_example_is_dropped_the_same_in_a_longer_batch() -> None:
    layer = _keyed()
    assert torch.equal(layer(torch.ones(9, 4))[:5], layer(torch.ones(5, 4)))


def test_evaluation_and_probability_zero_change_nothing() -> None:
    values = torch.randn(3, 3)
    assert torch.equal(_keyed().eval()(values), values)
    assert torch.equal(_keyed(probability=0.0)(values), values)


def test_probability_one_drops_all() -> None:
    assert not _keyed(probability=1.0)(torch.ones(3, 3)).any()
    assert scaled_mask(torch.tensor(1), torch.arange(4), 0, 1.0).dtype == torch.float32


def test_every_kind_of_dropout_is_replaced_in_place_wherever_it_is() -> None:
    shared = nn.Dropout(0.1)
    module = nn.Sequential(
        shared, nn.Sequential(nn.Dropout2d(0.2), nn.Dropout1d(0.3), shared), nn.Dropout3d(), shared, nn.AlphaDropout()
    )
    use_keys(module)
    found = [m for m in module.modules() if isinstance(m, KeyedDropout)]
    assert not [m for m in module.modules() if isinstance(m, (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d))]
    assert sorted((m.probability, m.per_channel) for m in found) == [
        (0.1, False),
        (0.1, False),
        (0.1, False),
        (0.2, True),
        (0.3, True),
        (0.5, True),
    ]
    assert sorted(m.site for m in found) == list(range(6))


def test_keys_are_no_part_of_the_state() -> None:
    assert _keyed().state_dict() == {}


def test_the_masks_of_two_sites_are_no_shifts_of_each_other() -> None:
    first, second = (scaled_mask(torch.tensor(12345), torch.arange(1_000), site, 0.5) > 0 for site in (0, 1))
    for shift in range(-3, 4):
        agree = float((first.roll(shift) == second).float().mean())
        assert abs(agree - 0.5) < 0.08, f"shifted by {shift}"
