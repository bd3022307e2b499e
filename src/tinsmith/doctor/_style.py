"""Style: the style sheet of a report's page. It is light or dark according to the reader's system."""

STYLE = """
:root { color-scheme: light dark;
  --ink: #1f2328; --faint: #6e7781; --paper: #ffffff; --panel: #f6f8fa; --line: #d0d7de;
  --error: #b42318; --warning: #9a6700; --info: #0969da; --good: #1a7f37;
  --keyword: #a0326e; --string: #0a5c36; --number: #7a3e9d; --name: #0550ae; }
@media (prefers-color-scheme: dark) { :root {
  --ink: #e6edf3; --faint: #8d96a0; --paper: #0d1117; --panel: #161b22; --line: #30363d;
  --error: #ff7b72; --warning: #e3b341; --info: #79c0ff; --good: #56d364;
  --keyword: #ff9bce; --string: #a5d6a7; --number: #d2a8ff; --name: #79c0ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 66rem; padding: 2rem 1.25rem 4rem; overflow-wrap: anywhere;
  color: var(--ink); background: var(--paper);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h1 code { font-size: inherit; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .6rem; overflow-wrap: anywhere; }
a { color: inherit; }
code, pre, .mono { font-size: 13px;
  font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.faint { color: var(--faint); }
.verdict { font-weight: 600; }
.verdict.good { color: var(--good); } .verdict.bad { color: var(--error); }
.list { border-collapse: collapse; width: 100%; margin-top: 1.25rem; }
.list td { padding: .3rem .75rem .3rem 0; border-top: 1px solid var(--line); vertical-align: top; }
.list td:nth-child(-n+2) { white-space: nowrap; }
.list td:nth-child(3) { width: 30%; min-width: 8rem; overflow-wrap: anywhere; }
.error > b, b.error { color: var(--error); } .warning > b, b.warning { color: var(--warning); }
.info > b, b.info { color: var(--info); }
.source { border: 1px solid var(--line); border-radius: 6px; overflow-x: auto;
  background: var(--panel); padding: .4rem 0; }
.row { display: grid; grid-template-columns: 4rem 1fr; min-width: max-content; }
.row > .number { text-align: right; padding-right: 1rem; color: var(--faint); user-select: none; }
.row > code { white-space: pre; padding-right: 1rem; }
.row.marked { background: color-mix(in srgb, var(--mark) 12%, transparent); }
.gap { color: var(--faint); padding: .1rem 0 .1rem 2.1rem; user-select: none; }
.finding { margin: .25rem 1rem .5rem 4rem; padding: .45rem .8rem; border-left: 3px solid var(--mark);
  background: var(--paper); border-radius: 0 6px 6px 0; max-width: 52rem; position: sticky; left: 4rem; }
.finding p { margin: 0; } .finding pre { margin: .1rem 0 0; white-space: pre-wrap; }
.finding p.label { margin-top: .5rem; color: var(--good); font-weight: 600; }
dt { margin-top: .6rem; } dd { margin: 0; }
.caret { font-weight: 700; color: var(--mark); }
.error { --mark: var(--error); } .warning { --mark: var(--warning); } .info { --mark: var(--info); }
:target { outline: 2px solid var(--mark, var(--info)); outline-offset: 2px; }
pre.words { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--panel); border: 1px solid var(--line);
  border-radius: 6px; padding: .7rem 1rem; }
.maps { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: 0; flex: 0 1 31rem; } figcaption { font-size: 13px; margin-bottom: .3rem; }
figure img { max-width: 100%; border-radius: 6px; border: 1px solid var(--line); background: white; display: block; }
.k, .kn, .kc, .ow { color: var(--keyword); } .s, .s1, .s2, .sd { color: var(--string); }
.mi, .mf { color: var(--number); } .nf, .nd { color: var(--name); } .c1 { color: var(--faint); font-style: italic; }
@media (max-width: 40rem) {
  .list tr { display: flex; flex-wrap: wrap; border-top: 1px solid var(--line); padding: .3rem 0; }
  .list td { border: 0; padding-block: 0; } .list td:nth-child(3) { flex: 1; } .list td:last-child { width: 100%; }
  .row { grid-template-columns: 2.6rem 1fr; } .row > .number { padding-right: .6rem; }
  .finding { margin: .25rem .4rem .5rem; left: .4rem; padding: .45rem .6rem; } }
"""
