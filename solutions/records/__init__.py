"""Record solutions: the best known schedules of each family, named in the catalog.

A file with VARIANTS plays the first of them. To play another one, set the file's constants to those of the variant.
"""
