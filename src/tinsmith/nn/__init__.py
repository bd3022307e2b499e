"""Networks and what they are made of, in the language of tiny-cuda-nn's configurations."""

__all__: list[str] = []
