"""The chapter on splitting a layer: over its weights, over its tokens, over its experts."""
