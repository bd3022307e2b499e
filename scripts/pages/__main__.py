"""Write the pages and plots again that are made from tables: ./scripts/docs write."""

import importlib

import tinsmith as ts

from . import badges, benchmarks_page, cli_page, configurations_page, notebook, pitfall_pages, plots, rule_pages
from .blocks import without_outputs
from .programs import write_outputs

ts.init("cpu", engine="taichi")
made = rule_pages.pages() | cli_page.pages() | configurations_page.pages() | benchmarks_page.pages()
for engine in pitfall_pages.ENGINES:
    ts.init("cpu", engine=engine, default_fp=importlib.import_module(engine).f64)
for path, text in (made | pitfall_pages.pages()).items():
    if without_outputs(path.read_text(encoding="utf-8") if path.exists() else "") != text:
        path.write_text(text, encoding="utf-8")
plots.write()
badges.write()
write_outputs()
notebook.write()
