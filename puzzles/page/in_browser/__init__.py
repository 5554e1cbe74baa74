"""Python in the browser: the page asks a web worker to run a player's code, to judge it and to draw it."""
