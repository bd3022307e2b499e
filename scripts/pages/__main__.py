"""Write the pages and plots anew that are made from tables: ./scripts/docs write."""

import importlib

import tinsmith as ts

from . import benchmarks_page, cli_page, configurations_page, pitfall_pages, plots, rule_pages

ts.init("cpu", engine="taichi")
made = rule_pages.pages() | cli_page.pages() | configurations_page.pages() | benchmarks_page.pages()
for engine in pitfall_pages.ENGINES:
    ts.init("cpu", engine=engine, default_fp=importlib.import_module(engine).f64)
for path, text in (made | pitfall_pages.pages()).items():
    path.write_text(text, encoding="utf-8")
plots.write()
