"""The site on which the schedules are played in a browser: `make site` builds it, and any web server can serve it."""
