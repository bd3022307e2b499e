"""The encoding before an array's networks, as print shows it."""

import tinsmith as ts


def test_print_names_the_encoding():
    encoding = {"otype": "HashGrid", "n_levels": 2, "log2_hashmap_size": 6}
    array = ts.nn.NetworkArray((2, 3), 2, 3, {"n_neurons": 8, "n_hidden_layers": 1}, encoding)
    assert "CellEncoding(otype='Grid', n_params=(6, " in repr(array)
