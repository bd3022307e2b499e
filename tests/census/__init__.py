"""The census: how often engines' own reverse modes go wrong, and whether lint says so; what lint finds in the wild."""
