"""Builds the wheel for pip (PEP 517, PEP 660): a few files in a zip, which needs no setuptools, and
so no network."""

import base64
import hashlib
import io
import os
import re
import tarfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))


def _field(name):
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as f:
        return re.search(r'^%s = "(.*)"$' % name, f.read(), re.M).group(1)


NAME, VERSION = _field("name"), _field("version")
INFO = f"{NAME}-{VERSION}.dist-info"


def _sources():
    folder = os.path.join(HERE, NAME)
    return [os.path.join(NAME, f) for f in sorted(os.listdir(folder))
            if f.endswith(".py") or f == "py.typed"]


def _read(name):
    with open(os.path.join(HERE, name), "rb") as f:
        return f.read()


def _metadata():
    head = (f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n"
            f"Summary: {_field('description')}\nLicense: Apache-2.0\n"
            f"Requires-Python: {_field('requires-python')}\n"
            "Description-Content-Type: text/markdown\n\n")
    return head.encode() + _read("README.md")


def _wheel(directory, files):
    files[f"{INFO}/METADATA"] = _metadata()
    files[f"{INFO}/WHEEL"] = (b"Wheel-Version: 1.0\nGenerator: bough\n"
                              b"Root-Is-Purelib: true\nTag: py3-none-any\n")
    record = []
    name = f"{NAME}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w", zipfile.ZIP_DEFLATED) as z:
        for path, data in files.items():
            z.writestr(path, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(data)}\n")
        z.writestr(f"{INFO}/RECORD", "".join(record) + f"{INFO}/RECORD,,\n")
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _wheel(wheel_directory, {path: _read(path) for path in _sources()})


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _wheel(wheel_directory, {f"{NAME}.pth": HERE.encode() + b"\n"})


def build_sdist(sdist_directory, config_settings=None):
    base = f"{NAME}-{VERSION}"
    with tarfile.open(os.path.join(sdist_directory, base + ".tar.gz"), "w:gz") as t:
        for path in _sources() + ["pyproject.toml", "build_wheel.py", "README.md"]:
            t.add(os.path.join(HERE, path), f"{base}/{path}")
        info, data = tarfile.TarInfo(f"{base}/PKG-INFO"), _metadata()
        info.size = len(data)
        t.addfile(info, io.BytesIO(data))
    return base + ".tar.gz"
