"""Recommenders under user-level differential privacy, side by side: `fedmmf reproduce dp`.

- `noise`: the accounting of the peers, central Gaussian noise.
- `pairs`: ratings as arrays, and the weights that users give to their ratings.
- `dpals`, `item_means`: peers, written from their papers; each can be run without noise.
- `rows`: every row of the table, its candidate settings and how it is scored.
- `curve`: the table and the figure.
"""
