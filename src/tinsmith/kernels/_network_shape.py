"""The shape of small networks that a kernel is built for, and where in their rows each number stands."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NetworkShape:
    """Sizes, activations and dtype ("f32", "f64") of networks, and how their parameters stand in rows.

    A row has `width` numbers, in `groups` of `lanes`. A network has, in this order, a row for each input, one
    for the first layer's biases, for each further hidden layer a row for each of its inputs and one for its biases,
    a row for each output, and as many as the outputs' biases fill.

    `lanes` is a power of two that divides `width`. Without `biases` their rows are left out.

    Where it is `by_sample`, kernels take a row's numbers one by one, and `lanes` samples at a time.
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
    def row(self) -> tuple[int, ...]:
        """Sizes of a row as kernels take it."""
        return (self.width,) if self.by_sample else (self.groups, self.lanes)

    @property
    def groups(self) -> int:
        """Vectors in a row."""
        return self.width // self.lanes

    @property
    def layer(self) -> int:
        """Rows of a hidden layer after the first."""
        return self.width + self.biases

    @property
    def outputs(self) -> int:
        """Where the outputs' rows begin."""
        return self.n_in + self.biases + (self.hidden - 1) * self.layer

    @property
    def rows(self) -> int:
        """Rows of a network."""
        return self.outputs + self.n_out + self.biases * -(-self.n_out // self.width)

    @property
    def work(self) -> tuple[int, int, int]:
        """Sizes of a task's workspace: rows, groups, lanes.

        Of samples, the gradients of a network's parameters; of neurons, activations and slopes, gradients on their way,
        hidden layers turned.
        """
        if self.by_sample:
            return self.rows, self.width, self.lanes
        return 8 * self.hidden + 8 + (self.hidden - 1) * self.width, self.groups, self.lanes
