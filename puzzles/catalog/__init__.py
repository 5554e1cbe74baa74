"""The catalog: every puzzle's statement, sizes, targets, hints and starter, by track."""
