"""Report before the write how an image will be treated, or refuse it.

A plain image is recognised as a whole, a packed one by its first megabytes: its system is known once it is written.
Does not contain: the tests themselves (`contents`, `images`), writes.
"""

from drupelet.errors import ConfigurationError
from hardware.flash.errors import FlashError
from hardware.flash.first_boot.first_boot import NEEDED_FILES, NEEDED_ROOT_FILES, FirstBoot, Kind, first_boot
from hardware.flash.first_boot.settings import Settings
from hardware.flash.image.contents import HEAD_BYTES, Layout, layout_of
from hardware.flash.image.ext import ExtPartition
from hardware.flash.image.fat import FatPartition
from hardware.flash.image.images import NO_BOOT, Disk, Image, identify
from hardware.flash.image.sources import ImageSource, PublishedImage


def recognize(
    source: ImageSource, expected: PublishedImage, treat_as: str | None, settings: Settings | None
) -> tuple[Layout, str]:
    """Return the image's layout, and the planned treatment in words.

    Raises ConfigurationError for what is no card's image or cannot be customised, FlashError for one that is cut.
    """
    layout = layout_of(source.path, source.peek(HEAD_BYTES))
    if source.unpacked_bytes_exact:
        check_length(source, layout, source.unpacked_bytes_min, expected)
    number = len(layout.partitions)
    words = f"{source.path}: an image of a card, {number} partition{'s' if number > 1 else ''}"
    if settings is None:
        return layout, f"{words}, to be written as it is"
    image = identify(Disk(source.path)) if source.packing == "raw" else None
    if image is None and not layout.bootable:
        image = Image(None, NO_BOOT, None, None)
    if image is None:
        check_user(settings, Kind(treat_as) if treat_as else None)
        return layout, f"{words}; what system it is shows once it is written"
    kind = certain_kind(source, image, treat_as)
    check_user(settings, kind)
    left_out = left_out_words(first_boot(kind, settings, files_present(image)))
    return layout, f"{source.path}: {words_of(image, kind, treat_as, 'to be ')}{'; ' if left_out else ''}{left_out}"


def certain_kind(source: ImageSource, image: Image, treat_as: str | None) -> Kind:
    """Return the kind; raises ConfigurationError if there is none, as the write would be useless."""
    kind = chosen_kind(image, treat_as)
    if kind is None:
        better = f" If you know better, add {remedy_of()}." if image.boot else ""
        raise ConfigurationError(
            f"{source.path} cannot be customised: {image.why}.{better} Without settings it is written as it is."
        )
    return kind


def check_user(settings: Settings, kind: Kind | None) -> None:
    """Raise ConfigurationError for root where the image is not, or may not be, Debian's own: no other is entered so."""
    if settings.user == "root" and kind is not Kind.DEBIAN:
        unless = "" if kind else "; if the image is Debian's own, which has no other, add `--as debian`"
        raise ConfigurationError(f"--user root cannot log in: give another, its sudo asks for no password{unless}.")


def files_present(image: Image) -> dict[str, str]:
    """Read the files of the image that first boot's files are made of, those that are there."""
    places: list[tuple[FatPartition | ExtPartition | None, tuple[str, ...]]]
    places = [(image.boot, NEEDED_FILES), (image.root, NEEDED_ROOT_FILES)]
    contents = {name: place.read(name) for place, names in places if place for name in names}
    return {name: text.decode("utf-8", "surrogateescape") for name, text in contents.items() if text is not None}


def left_out_words(made: FirstBoot) -> str:
    """Return the settings that a kind of image does not support; empty if it supports all."""
    return f"this kind of image cannot be told {'; '.join(made.left_out)}." if made.left_out else ""


def check_length(source: ImageSource, layout: Layout, size: int, expected: PublishedImage) -> None:
    """Raise FlashError for an image that ends before its partitions, unless its SHA-256 proves it whole."""
    if size < layout.end and not expected.is_known:
        raise FlashError(
            f"{source.path} is cut short: it has {size} bytes, its partitions end at {layout.end}. Download it again, "
            "or give --sha256 if it was published so."
        )


def chosen_kind(image: Image, treat_as: str | None) -> Kind | None:
    """Return how an image is customised; None for one that cannot be customised."""
    return (Kind(treat_as) if treat_as else image.kind) if image.boot else None


def words_of(image: Image, kind: Kind, treat_as: str | None, tense: str = "") -> str:
    """Return the name of the system, how it is customised, and why."""
    return f"{image.system or 'no os-release'}, {tense}customised as {kind}: {'as you say' if treat_as else image.why}"


def remedy_of() -> str:
    """Return the option by which the user names the kind of an image."""
    return f"`--as` with one of {', '.join(Kind)}"
