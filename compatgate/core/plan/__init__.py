"""Plan an upgrade of a target: what it breaks and why, required canary runs, rollout order.

`effects` makes the plan of pure data; `frontier` asks it of every driver release, `ranges` edits
entries, `releases` asks frameworks, `upgrades` chooses versions and `waves` orders nodes.
"""
