from ._networks import backward_networks as backward_networks
from ._networks import forward_networks as forward_networks
from ._networks import learning_networks as learning_networks
from ._shape import NetworkShape as NetworkShape
