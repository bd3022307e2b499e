"""`create_from_config`: the files of tiny-cuda-nn's samples, in their shape; what is settled; what is refused."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from tinsmith import ConfigError, InputError
from tinsmith.nn import create_from_config

ONE_BLOB = """
{
	// what the image is compared with
	"loss": { "otype": "RelativeL2" },
	"optimizer": {
		"otype": "Adam",
		"learning_rate": 1e-2,
		"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8,
		"l2_reg": 1e-8
	},
	"encoding": { "otype": "OneBlob", "n_bins": 64 },
	"network": {
		"otype": "FullyFusedMLP", /* one kernel, there */
		"activation": "ReLU",
		"output_activation": "None",
		"n_neurons": 128,
		"n_hidden_layers": 5,
	}
}
"""
HASH = """
{
	"loss": { "otype": "RelativeL2" },
	"optimizer": {
		"otype": "Adam",
		"learning_rate": 1e-2,
		"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-15,
		"l2_reg": 1e-6
	},
	"encoding": {
		"otype": "HashGrid",
		"n_levels": 16,
		"n_features_per_level": 2,
		"log2_hashmap_size": 15,
		"base_resolution": 16,
		"per_level_scale": 1.5,
		"fixed_point_pos": false
	},
	"network": {
		"otype": "FullyFusedMLP",
		"activation": "ReLU",
		"output_activation": "None",
		"n_neurons": 64,
		"n_hidden_layers": 2
	}
}
"""
WRAPPED = """
{
	"loss": { "otype": "L2" },
	"optimizer": {
		"otype": "EMA", "decay": 0.9,
		"nested": {
			"otype": "ExponentialDecay", "decay_start": 20, "decay_interval": 10, "decay_base": 0.33,
			"nested": { "otype": "Adam", "learning_rate": 1e-2 }
		}
	},
	"encoding": { "otype": "Frequency", "n_frequencies": 4 },
	"network": { "otype": "CutlassMLP", "activation": "Sine", "n_neurons": 24, "n_hidden_layers": 1 }
}
"""


def picture(x):
    return torch.stack([x.sum(1).sin(), x[:, 0] * x[:, 1], (x[:, 0] > x[:, 1]).to(x.dtype)], 1) + 0.5


@pytest.mark.parametrize(
    ("text", "widths"), [(ONE_BLOB, [128, *[128] * 5, 3]), (HASH, [32, 64, 64, 3]), (WRAPPED, [16, 24, 3])]
)
def test_files_of_this_shape_are_read_and_learn(tmp_path, text, widths):
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    created = create_from_config(2, 3, path)
    assert [columns for _, columns in created.model.matrix_shapes] + [3] == widths
    x = torch.rand(256, 2)
    losses = []
    for _ in range(25):
        created.optimizer.zero_grad()
        losses.append(created.loss(created.model(x), picture(x)))
        losses[-1].backward()
        created.optimizer.step()
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("text", [ONE_BLOB, HASH, WRAPPED])
def test_a_resolved_configuration_recreates_the_model(text):
    created = create_from_config(2, 3, text, seed=3)
    again = create_from_config(2, 3, json.dumps(created.config), seed=3)
    assert again.config == created.config
    assert torch.equal(again.model.params, created.model.params)
    assert repr(again.optimizer) == repr(created.optimizer)


def test_everything_may_be_left_out():
    created = create_from_config(3, 1, {})
    assert {part: settled["otype"] for part, settled in created.config.items()} == {
        "loss": "RelativeL2",
        "optimizer": "Adam",
        "encoding": "OneBlob",
        "network": "CutlassMLP",
    }


def test_arguments_reach_the_model(device):
    created = create_from_config(2, 3, WRAPPED, seed=5, dtype=torch.float64, device=device, alignment=16)
    assert created.model.seed == 5 and created.model.alignment == 16
    assert created.model.params.dtype == torch.float64 and created.model.params.device.type == device
    assert created.model(torch.rand(4, 2, device=device)).shape == (4, 3)


REFUSED = [
    ({"netwerk": {}}, "`netwerk` is not a part of a configuration\n  expected  loss, optimizer, encoding, network\n"),
    ({"netwerk": {}}, "Did you mean `network`?"),
    ({"network": {"n_neuron": 3}}, "`network.n_neuron` is not a key of CutlassMLP"),
    ({"loss": {"otype": "L3"}}, "`loss.otype` is not a known loss"),
    ({"encoding": 3}, "`encoding` is not an encoding"),
    ({"optimizer": {"otype": "EMA", "nested": {"otype": "Adum"}}}, "`optimizer.nested.otype`"),
]


@pytest.mark.parametrize(("config", "words"), REFUSED)
def test_refused(config, words):
    with pytest.raises(ConfigError) as caught:
        create_from_config(2, 3, config)
    assert words in str(caught.value)


def test_no_file(tmp_path):
    with pytest.raises(InputError, match=r"none\.json cannot be read"):
        create_from_config(2, 3, tmp_path / "none.json")


@pytest.mark.costly
def test_importing_nn_loads_no_optional_package():
    """Neither an engine nor what only some configurations or the trainer need."""
    guests = {"taichi", "quadrants", "pytorch_optimizer", "tensorboard", "matplotlib", "safetensors", "rich"}
    said = "import sys, tinsmith.nn; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", said], check=True, capture_output=True, text=True, timeout=120)
    assert not guests & set(done.stdout.split())
