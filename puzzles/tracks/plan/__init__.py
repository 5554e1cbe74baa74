"""The plan track: how is a real model split over a real cluster?"""
