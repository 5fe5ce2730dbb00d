"""The countries by whose radio rules a board may send: two letters of ISO 3166, as the images check them.

An unknown one is not a detail: first boot then leaves the radio off, and says nothing.
Source: tz database, `iso3166.tab`: code, a tab, name; `#` begins a comment. The system's; where it has none, CODES.
"""

import re
from pathlib import Path

from drupelet.command.config_check import nearest
from drupelet.errors import ConfigurationError

SYSTEM_TABLE = Path("/usr/share/zoneinfo/iso3166.tab")
CODES = (  # of tz database 2025b; the last change was South Sudan's, in 2011
    "AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY "
    "BZ CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK "
    "FM FO FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR "
    "IS IT JE JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK "
    "ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM "
    "PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF "
    "TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS YE YT ZA ZM ZW "
)
HABITS = {"UK": "GB", "GBR": "GB", "USA": "US"}  # what people write; the table has no such code or word


def known_country(text: str | None, system_table: Path = SYSTEM_TABLE) -> str | None:
    """Return the code if it is in the table; raises ConfigurationError, with the nearest country, if it is not."""
    if text is None:
        return None
    names = country_names(system_table)
    if text in names:
        return text
    near = nearest_country(text, names)
    hint = (
        f"did you mean {near}{f', {names[near]}' if names[near] else ''}?"
        if near
        else "give two capital letters such as GB."
    )
    raise ConfigurationError(f"--wifi-country {text!r} is no country of ISO 3166: {hint}")


def country_names(system_table: Path) -> dict[str, str]:
    """Read code -> name; the names are empty where the system has no table."""
    try:
        lines = system_table.read_text("utf-8").splitlines()
    except OSError:
        return dict.fromkeys(CODES.split(), "")
    words = (line.split("\t") for line in lines if not line.startswith("#"))
    return {each[0]: each[1] for each in words if len(each) == 2}


def nearest_country(text: str, names: dict[str, str]) -> str | None:
    """Find the code that a person meant: in small letters, by habit, by the name or a word of it, or by a like name."""
    wanted = HABITS.get(text.strip().upper(), text.strip().upper())
    if wanted in names:
        return wanted
    named = {name: code for code, name in names.items() if name}
    of_word = [code for name, code in named.items() if wanted in {name.upper(), *re.findall(r"\w+", name.upper())}]
    near = nearest(text.title(), named) if len(wanted) > 3 else None
    return next(iter(of_word), named.get(near) if near else None)
