"""The page: the site on which the puzzles are played in a browser.

`make site` builds it, and any web server can serve it.
"""
