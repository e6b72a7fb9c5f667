"""The style of the page: light and dark, wide and narrow."""

from __future__ import annotations

STYLE = """
:root {
  --ground: #fbfbfa; --card: #ffffff; --ink: #1d2126; --faint: #626a73; --line: #dfe2e6; --link: #2b5aa8;
  --holds: #146c43; --partly: #8a5a00; --fails: #b02a37; --unknown: #5c636a;
  --holds-ground: #dff3e7; --partly-ground: #fbefd2; --fails-ground: #fbe1e3; --unknown-ground: #eceef0;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14171a; --card: #1c2024; --ink: #e5e8eb; --faint: #9aa3ab; --line: #343a40; --link: #8ab4f8;
    --holds: #7fdcaa; --partly: #f0c466; --fails: #f39aa3; --unknown: #b4bbc2;
    --holds-ground: #143527; --partly-ground: #3a2d10; --fails-ground: #401d22; --unknown-ground: #2b3035;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; margin: 0 0 .5rem; }
h3 { font-size: 1rem; margin: 0 0 .4rem; }
h3 small { color: var(--faint); font-weight: normal; }
h1, h2, h3, p, dd, td, figcaption { overflow-wrap: anywhere; }
a { color: var(--link); }
.lead, figcaption, summary, caption { color: var(--faint); }
section { margin-top: 2.5rem; padding-top: 1.5rem; border-top: 1px solid var(--line); }
article { background: var(--card); border: 1px solid var(--line); border-left: 4px solid var(--unknown);
  border-radius: 6px; padding: .8rem 1rem; margin: .8rem 0; }
article.holds { border-left-color: var(--holds); }
article.partly { border-left-color: var(--partly); }
article.fails { border-left-color: var(--fails); }
dl { display: grid; grid-template-columns: 6rem minmax(0, 1fr); gap: .2rem .8rem; margin: 0; font-size: .95rem; }
dt { color: var(--faint); }
dd { margin: 0; }
.badge { display: inline-block; padding: .05rem .55rem; border-radius: 999px; font-size: .85rem; font-weight: 600;
  white-space: nowrap; }
.badge.holds { color: var(--holds); background: var(--holds-ground); }
.badge.partly { color: var(--partly); background: var(--partly-ground); }
.badge.fails { color: var(--fails); background: var(--fails-ground); }
.badge.unknown { color: var(--unknown); background: var(--unknown-ground); }
.warning { color: var(--partly); background: var(--partly-ground); padding: .5rem .8rem; border-radius: 6px; }
figure { margin: 1.2rem 0; }
img { display: block; max-width: 100%; height: auto; background: #fff; border: 1px solid var(--line);
  border-radius: 6px; }
@media (prefers-color-scheme: dark) { img { filter: brightness(.9); padding: .3rem; } }
figcaption { font-size: .9rem; margin-top: .4rem; }
.scroll { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-size: .9rem; min-width: min(100%, 34rem); }
.summary { width: 100%; }
caption { text-align: left; padding: .3rem 0; }
th, td { text-align: left; vertical-align: top; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); }
.numbers th, .numbers td { white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.facts th { font-weight: normal; color: var(--faint); white-space: nowrap; }
details { margin: .8rem 0; }
summary { cursor: pointer; }
@media (max-width: 36rem) {
  main { padding: 1rem .8rem 3rem; }
  h1 { font-size: 1.35rem; }
  dl { grid-template-columns: minmax(0, 1fr); gap: 0; }
  dt { margin-top: .3rem; font-size: .85rem; }
}
"""
