"""What a picture shows: its texts, the tooltips of its marks, and its paths."""

from typing import Any
from xml.etree import ElementTree as ET

from drawing import svg

SVG = "{http://www.w3.org/2000/svg}"


def root(picture: Any) -> ET.Element:
    return ET.fromstring(svg(picture))


def texts(picture: Any) -> list[str]:
    """The texts of a picture, without their tooltips."""
    return ["".join(_without_tips(node)) for node in root(picture).iter(f"{SVG}text")]


def _without_tips(node: ET.Element) -> list[str]:
    inner = ["".join(child.itertext()) if child.tag != f"{SVG}title" else "" for child in node]
    return [node.text or "", *(part + (child.tail or "") for part, child in zip(inner, node))]


def tips(picture: Any) -> list[str]:
    """The tooltips of marks; the first title is the picture's own."""
    return [node.text or "" for node in root(picture).iter(f"{SVG}title")][1:]


def paths(picture: Any, attribute: str, value: str) -> list[ET.Element]:
    return [node for node in root(picture).iter(f"{SVG}path") if node.get(attribute) == value]
