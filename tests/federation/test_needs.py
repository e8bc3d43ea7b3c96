"""What is not installed is named, with the command that installs it."""

import sys

import pytest

from fedmmf.errors import SettingsError
from fedmmf.federation.needs import import_extra


@pytest.mark.parametrize("name", ["nvflare", "starlette", "uvicorn", "prometheus_client"])
def test_a_missing_package_of_the_extra_is_named(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SettingsError, match=rf"(?i)needs {name}; .*'fedmmf\[federation\]'"):
        import_extra(name)


def test_any_other_missing_module_is_a_mistake_of_ours():
    with pytest.raises(ModuleNotFoundError):
        import_extra("fedmmf.no_such_module")
