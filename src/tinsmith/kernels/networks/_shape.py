"""The shape of small networks that a kernel is built for, and where each number is in their rows of parameters."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NetworkShape:
    """Sizes, activations and dtype ("f32", "f64") of networks, and the layout of their parameters in rows.

    A row has `width` numbers, in `groups` of `lanes`. A network has, in this order, a row for each input, one
    for the first layer's biases, for each further hidden layer a row for each of its inputs and one for its biases,
    a row for each output, and as many as the outputs' biases fill.

    `lanes` is a power of two that divides `width`, for a kernel 4 at least. Without `biases` their rows are left out.

    If `by_sample`, kernels read a row's numbers individually and process `lanes` samples at a time, whatever the width;
    else they read a row's vectors.
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
        """The number of vectors in a row."""
        return self.width // self.lanes

    @property
    def inner(self) -> int:
        """The first row of the hidden layers after the first."""
        return self.n_in + self.biases

    @property
    def layer(self) -> int:
        """The number of rows of a hidden layer after the first."""
        return self.width + self.biases

    @property
    def outputs(self) -> int:
        """The first row of the output layer."""
        return self.inner + (self.hidden - 1) * self.layer

    @property
    def rows(self) -> int:
        """The number of rows of a network."""
        return self.outputs + self.n_out + self.biases * -(-self.n_out // self.width)

    @property
    def vectors(self) -> int:
        """The number of vectors of a network."""
        return self.rows * self.groups

    # The layout of a task's workspace. If `by_sample`: the gradients of a network's parameters, a vector each. Else, in
    # this order: activations of `together` samples, layer by layer; their slopes; gradients of two layers; gradients of
    # outputs; transposed hidden layers; transposed outputs.
    @property
    def some(self) -> int:
        """The number of outputs computed at once, in a vector: with few outputs, a wider one would be mostly empty."""
        return min(self.lanes, max(4, 1 << (self.n_out - 1).bit_length()))

    @property
    def together(self) -> int:
        """The number of samples taken through a layer before the next layer begins. Of 8 to 64, 16 was never slow."""
        return 16

    @property
    def layer_space(self) -> int:
        """The number of vectors of a layer for `together` samples."""
        return self.together * self.groups

    @property
    def slopes(self) -> int:
        """Where slopes begin in the workspace."""
        return self.hidden * self.layer_space

    @property
    def back(self) -> int:
        """Where the gradients of two layers begin in the workspace."""
        return 2 * self.slopes

    @property
    def incoming(self) -> int:
        """Where the gradients of outputs begin in the workspace."""
        return self.back + 2 * self.layer_space

    @property
    def transposed_layers(self) -> int:
        """Where the transposed hidden layers begin in the workspace."""
        return self.incoming + self.together * -(-self.n_out // self.some)

    @property
    def transposed_outputs(self) -> int:
        """Where the transposed outputs begin in the workspace."""
        return self.transposed_layers + (self.hidden - 1) * self.width * self.groups

    @property
    def space(self) -> int:
        """The number of vectors of a workspace."""
        if self.by_sample:
            return self.rows * self.width
        return self.transposed_outputs + -(-self.n_out // self.some) * self.width
