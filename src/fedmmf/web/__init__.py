"""Web applications of this package: a server in a thread, and who may ask it for what.

Whatever answers over HTTP is a Starlette application that `serving.WebServer` runs. `serving` and
`access` need the extra `federation`; no party loads them.
"""
