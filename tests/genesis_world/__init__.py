"""tinsmith on Genesis: each kernel of Genesis, unedited, as a differentiable function of its own state."""
