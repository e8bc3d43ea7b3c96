"""A federation across machines: its folder, its server, and what an operator sees of it.

Nothing here knows ratings, features of people or masks; the other side is `federation.site`.
"""
