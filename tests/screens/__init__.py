"""Screens: what commands print, as approved text files, which are the only place in the tests that holds sentences.

`scenes.py` is the table of what is typed. `make screens` types it and writes a file for each scene, to be read in the
diff; `test_scenes.py` types it again and compares.
"""
