"""What the commands run. Each app is a folder with a face of its own; nothing is handed on here."""

__all__: list[str] = []
