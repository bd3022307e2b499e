"""The shape of small networks that a kernel is built for, and where in their rows each number stands."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NetworkShape:
    """Sizes, activations and dtype ("f32", "f64") of networks, and how their parameters stand in rows.

    A row has `width` numbers, in `groups` of `lanes`. A network has, in this order, a row for each input, one
    for the first layer's biases, for each further hidden layer a row for each of its inputs and one for its biases,
    a row for each output, and as many as the outputs' biases fill.

    `lanes` is a power of two that divides `width`, for a kernel 4 at least. Without `biases` their rows are left out.

    Where it is `by_sample`, kernels take a row's numbers one by one, and `lanes` samples at a time, whatever the width;
    else its vectors.
    """

    n_in: int
    n_out: int
    width: int
    hidden: int
    activation: str
    output_activation: str
    biases: bool
    lanes: int
    dtype: str
    by_sample: bool = False

    @property
    def groups(self) -> int:
        """Vectors in a row."""
        return self.width // self.lanes

    @property
    def inner(self) -> int:
        """Where the rows of the hidden layers after the first begin."""
        return self.n_in + self.biases

    @property
    def layer(self) -> int:
        """Rows of a hidden layer after the first."""
        return self.width + self.biases

    @property
    def outputs(self) -> int:
        """Where the outputs' rows begin."""
        return self.inner + (self.hidden - 1) * self.layer

    @property
    def rows(self) -> int:
        """Rows of a network."""
        return self.outputs + self.n_out + self.biases * -(-self.n_out // self.width)

    @property
    def vectors(self) -> int:
        """Vectors of a network."""
        return self.rows * self.groups

    # A task's workspace. Of samples: the gradients of a network's parameters, a vector each. Of neurons, in this order:
    # activations of some samples, layer after layer; their slopes; gradients on their way; gradients of outputs; hidden
    # layers transposed; outputs transposed.
    @property
    def some(self) -> int:
        """How many outputs are computed at once, in a vector: few outputs leave most of a wider one empty."""
        return min(self.lanes, max(4, 1 << (self.n_out - 1).bit_length()))

    @property
    def together(self) -> int:
        """How many samples are taken through a layer before the next is begun. Of 8 to 64, 16 was never slow."""
        return 16

    @property
    def layer_space(self) -> int:
        """Vectors of a layer, of so many samples."""
        return self.together * self.groups

    @property
    def slopes(self) -> int:
        """Where slopes begin."""
        return self.hidden * self.layer_space

    @property
    def back(self) -> int:
        """Where gradients on their way begin: those of two layers."""
        return 2 * self.slopes

    @property
    def incoming(self) -> int:
        """Where gradients of outputs begin."""
        return self.back + 2 * self.layer_space

    @property
    def transposed_layers(self) -> int:
        """Where hidden layers begin that are transposed."""
        return self.incoming + self.together * -(-self.n_out // self.some)

    @property
    def transposed_outputs(self) -> int:
        """Where outputs begin that are transposed."""
        return self.transposed_layers + (self.hidden - 1) * self.width * self.groups

    @property
    def space(self) -> int:
        """Vectors of a workspace."""
        if self.by_sample:
            return self.rows * self.width
        return self.transposed_outputs + -(-self.n_out // self.some) * self.width
