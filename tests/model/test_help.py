"""What Python users read: help, and errors in their own words."""

import pydoc

import pytest

from fedmmf import FedMMF, Ratings, Settings
from fedmmf.errors import DataError, SettingsError


def test_help_explains_every_setting_in_the_words_of_its_field():
    text = " ".join(pydoc.plain(pydoc.render_doc(FedMMF)).replace("|", " ").split())
    for title, names in Settings.groups().items():
        assert f" {title} {names[0]} (" in text or title == "Sharing and sums"
        for name in names:
            field = Settings.model_fields[name]
            assert f"{name} ({field.default!r}): {field.description}" in text
    assert text.index("Settings:") < text.index("Examples:")


def test_help_begins_with_a_short_signature():
    first = pydoc.plain(pydoc.render_doc(FedMMF)).splitlines()[3]
    assert first.lstrip("| ").startswith("FedMMF(*, mask='auto', ")
    assert len(first) < 900


def test_lines_of_help_fit_a_screen():
    assert max(map(len, FedMMF.__doc__.splitlines())) <= 100


def test_errors_name_flags_only_on_the_command_line(frame):
    twice = frame.vstack(frame)
    with pytest.raises(DataError, match="duplicates='last' or 'mean'") as refused:
        Ratings.from_frame(twice)
    assert "--" not in str(refused.value)
    assert refused.value.flags == "--duplicates last|mean, --columns"
    with pytest.raises(SettingsError, match="objective 'ranking', mask 'none'") as refused:
        FedMMF().fit(frame[:, :2])
    assert "--" not in str(refused.value)
    assert refused.value.flags == "--objective ranking --mask none"
