"""Compile the native CPU operators where that can be done; pyproject.toml says the rest.

Without a compiler the install goes on in one line: packages then run with ONNX Runtime's own
operators. SPECDEC_NATIVE_BUILD=off leaves the library out, SPECDEC_NATIVE_BUILD=require fails
instead of leaving it out (for wheels).
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
_spec = importlib.util.spec_from_file_location(
    "native_library", ROOT / "scripts" / "native_library.py"
)
assert _spec is not None
assert _spec.loader is not None
native_library = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(native_library)


class BuildLibrary(build_ext):
    """Compiles the library by its own rules: it is no module of Python and has no suffix of one."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return the file of an extension: libspecdec_native.so, whatever Python builds it."""
        return str(Path(*fullname.split(".")[:-1]) / native_library.NAME)

    def build_extension(self, ext: Extension) -> None:
        """Compile, or say in one line why not."""
        switch = os.environ.get("SPECDEC_NATIVE_BUILD", "")
        target = Path(self.get_ext_fullpath(ext.name))
        try:
            if switch == "off":
                raise native_library.CannotBuildError("SPECDEC_NATIVE_BUILD=off")
            print(f"native CPU operators: compiled, {native_library.build(target.parent)}")
        except native_library.CannotBuildError as error:
            if switch == "require":
                raise SystemExit(f"error: native CPU operators: {error}") from None
            print(f"native CPU operators: left out, ONNX Runtime's own are used ({error})")

    def copy_extensions_to_source(self) -> None:
        """Copy the library beside the sources (an editable install), if there is one."""
        if any(
            Path(self.build_lib, name).exists()
            for name in map(self.get_ext_filename, self._names())
        ):
            super().copy_extensions_to_source()

    def _names(self) -> list[str]:
        return [self.get_ext_fullname(ext.name) for ext in self.extensions]

    def get_outputs(self) -> list[str]:
        """Return what was built: nothing where the library was left out."""
        return [path for path in super().get_outputs() if Path(path).exists()]


class PlatformWheel(bdist_wheel):
    """Tags a wheel with the library by its platform alone, and one without it as any."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return ("py3", "none", platform)."""
        built = list(Path(self.bdist_dir).rglob(native_library.NAME)) or list(
            Path("build").glob(f"lib*/**/{native_library.NAME}")
        )
        return ("py3", "none", super().get_tag()[2] if built else "any")


setup(
    ext_modules=[Extension("specdec.engines.native.library_file", sources=[])],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": PlatformWheel},
)
