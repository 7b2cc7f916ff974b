"""Makes texts from Kafka, pages and recordings safe for a terminal."""


def printable(text: str) -> str:
    """Return a text as one line: an escape sequence in it would control the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
