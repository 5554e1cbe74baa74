"""The layout track: where does each tensor live?"""
