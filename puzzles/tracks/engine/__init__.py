"""The engine track: how is the maths split?"""
