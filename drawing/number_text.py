"""Numbers as short text: times in steps, large counts with the suffixes k, M and G."""


def time_text(steps: float) -> str:
    """19.9 is '19.9', 17.0 is '17', 13.05 is '13.05', 9498.0 is '9,498': exact, since every tick is a number of
    thousandths of a step."""
    return f"{steps:,.3f}".rstrip("0").rstrip(".")


def tenths_text(number: float) -> str:
    """19.9 is '19.9', 17.0 is '17'."""
    return f"{number:.1f}".removesuffix(".0")


def short_text(number: int) -> str:
    """2,359,296 is '2.36M', 4,096 is '4.1k'."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return str(number)
