"""The schedule track: when does each rank compute and communicate?"""
