"""What becomes of an image: said before the write as far as its packing shows it, refused before it where it can be.

A plain image is recognised whole, a packed one by its first megabytes; what system that holds shows once it is written.
Never here: the tests themselves (`contents`, `images`), any write.
"""

from drupelet.errors import ConfigurationError
from hardware.flash.contents import HEAD_BYTES, Layout, layout_of
from hardware.flash.errors import FlashError
from hardware.flash.first_boot import Kind
from hardware.flash.images import NO_BOOT, Disk, Image, identify
from hardware.flash.sources import Expected, ImageSource


def judged(source: ImageSource, expected: Expected, treat_as: str | None, *, customised: bool) -> tuple[Layout, str]:
    """Look into the image: its layout, and in words what will become of it.

    Raises ConfigurationError for what is no card's image or cannot be customised, FlashError for one that is cut.
    """
    layout = layout_of(source.path, source.peek(HEAD_BYTES))
    if source.unpacked_bytes_exact:
        check_length(source, layout, source.unpacked_bytes_min, expected)
    number = len(layout.partitions)
    words = f"{source.path}: an image of a card, {number} partition{'s' if number > 1 else ''}"
    if not customised:
        return layout, f"{words}, to be written as it is"
    image = identify(Disk(source.path)) if source.packing == "raw" else None
    if image is None and not layout.bootable:
        image = Image(None, NO_BOOT, None, None)
    if image is None:
        return layout, f"{words}; what system it is shows once it is written"
    return layout, f"{source.path}: {words_of(image, certain_kind(source, image, treat_as), treat_as, 'to be ')}"


def certain_kind(source: ImageSource, image: Image, treat_as: str | None) -> Kind:
    """Give the kind; raises ConfigurationError if there is none, as the write would be for nothing."""
    kind = chosen_kind(image, treat_as)
    if kind is None:
        better = f" If you know better, add {remedy_of()}." if image.boot else ""
        raise ConfigurationError(
            f"{source.path} cannot be customised: {image.why}.{better} Without settings it is written as it is."
        )
    return kind


def check_length(source: ImageSource, layout: Layout, size: int, expected: Expected) -> None:
    """Raise FlashError for an image that ends before its partitions do, unless its SHA-256 says that it is whole."""
    if size < layout.end and not expected.known:
        raise FlashError(
            f"{source.path} is cut short: it has {size} bytes, its partitions end at {layout.end}. Download it again, "
            "or give --sha256 if it was published so."
        )


def chosen_kind(image: Image, treat_as: str | None) -> Kind | None:
    """Say as what an image is customised; None for one that cannot be."""
    return (Kind(treat_as) if treat_as else image.kind) if image.boot else None


def words_of(image: Image, kind: Kind, treat_as: str | None, tense: str = "") -> str:
    """Say what system it is, and as what it is customised for which reason."""
    return f"{image.system or 'no os-release'}, {tense}customised as {kind}: {'as you say' if treat_as else image.why}"


def remedy_of() -> str:
    """Name the option by which a person who knows better says what an image is."""
    return f"`--as` with one of {', '.join(Kind)}"
