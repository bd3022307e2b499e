"""What makes the pages of docs/: their programs run, their outputs, their links, the generated ones among them."""
