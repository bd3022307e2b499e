"""Write the pages and plots anew that are made from tables: ./scripts/docs write."""

import tinsmith as ts

from . import cli_page, rule_pages

ts.init("cpu", engine="taichi")
for path, text in (rule_pages.pages() | cli_page.pages()).items():
    path.write_text(text, encoding="utf-8")
