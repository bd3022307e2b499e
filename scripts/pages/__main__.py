"""Write the pages and plots anew that are made from tables: ./scripts/docs write."""

import tinsmith as ts

from . import benchmarks_page, cli_page, plots, rule_pages

ts.init("cpu", engine="taichi")
for path, text in (rule_pages.pages() | cli_page.pages() | benchmarks_page.pages()).items():
    path.write_text(text, encoding="utf-8")
plots.write()
